"""Plans by the load: rows confirmed each at its own load, and plans that grow.

If the load cannot be requested, nothing waits for it. Confirmed rows are held, with the baseline
instead of every other row. Once a load arrives for which no row is held, the study continues at
that load.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import db
from tuner.core import (
    ANYWHERE,
    HOUR,
    LOAD_REACH,
    LOAD_STEP,
    Context,
    Done,
    InvalidInput,
    Past,
    Phase,
    Plan,
    Policy,
    Row,
    Setting,
    Study,
    Suggestion,
    Trial,
    Try,
    Worth,
    is_at,
    load_band,
    part_of_day,
    refuse_two_signals,
    render_setting,
    setting_key,
    windows,
)
from tuner.study.by_hour import confirming_hours, hour_duel, hour_is_open
from tuner.study.confirm import (
    CONFIRM_MOST,
    CONFIRM_TRIES,
    CONFIRM_WINDOWS,
    PENDING,
    THE_BASELINE,
    ConfirmResult,
    Duel,
    confirmation_load,
    duel,
    measuring,
    row_text,
)
from tuner.study.derived import Derived
from tuner.study.load_history import HourlyLoads
from tuner.study.moves import Assign, Move, hold_baseline, in_words, of_this_phase, refusal_of
from tuner.study.reach import Reach, baseline_windows, own_windows, reach_of

log = logging.getLogger(__name__)

MOST_WINDOWS = 2 * CONFIRM_TRIES
"""A row ends at its confirmed load after this number of confirming windows."""


@dataclass
class Spent:
    """Ask a policy only once for the same trials when all are spent: its plan is the same at every load."""

    policy: Policy
    _plans: dict[int, Suggestion] = field(default_factory=dict)

    def suggest(self, past: Past) -> Suggestion:
        """Return the policy's suggestion."""
        if past.left > 0:
            return self.policy.suggest(past)
        if len(past.trials) not in self._plans:
            self._plans = {len(past.trials): self.policy.suggest(past)}
        return self._plans[len(past.trials)]


@dataclass
class PlanGrowth:
    """Decide whether plans by the load should grow: at every poll, computed once per load band."""

    store: db.Store
    policy: Callable[[str], Policy]
    _by_band: Derived[dict[int, str]] = field(default_factory=Derived)
    _spent: Derived[Spent] = field(default_factory=Derived)
    _held: dict[str, HourlyLoads] = field(default_factory=dict)

    def past(self, study: Study, trials: Sequence[Trial], now: Context) -> Past:
        """Return a study's past, with the observed loads if its plan depends on one."""
        if not study.terms.plan_by:
            return Past(study=study, trials=tuple(trials), context=now)
        held = self._held.setdefault(study.id, HourlyLoads())
        since = held.latest or study.created_at
        held.add(study, self.store.observations.samples(study.id, study.objective.metric, since))
        return Past(
            study=study, trials=tuple(trials), context=now, loads=held.history(study, trials)
        )

    def why(
        self, study: Study, count: int, now: Context, trials: Callable[[str], Sequence[Trial]]
    ) -> str:
        """Return why a holding study should search at the present load; empty if it should not.

        `count` is its number of trials. A failing policy is logged: the hold continues.
        """
        by = study.terms.plan_by
        if by not in now:
            return ""
        band = part_of_day(now[by]) if by == HOUR else load_band(now[by])
        reasons = self._by_band.get(study, count, dict)
        if band not in reasons:
            past = self.past(study, trials(study.id), now)
            reasons[band] = ""
            try:
                policy = self._spent.get(study, count, lambda: Spent(self.policy(study.policy)))
                reasons[band] = why_grow(past, policy)
            except Exception:  # a plug-in's exception must not end a hold
                log.exception("event=policy_failed policy=%s study=%s", study.policy, study.id)
        return reasons[band]


def unsupported(study: Study) -> str:
    """Return the reason to pause a study whose plan follows two signals; empty for other studies."""
    try:
        refuse_two_signals(study.terms.plan_by)
    except InvalidInput as error:
        way = f"stop it with `jouletune study stop {study.id}` and create a study by one signal"
        return "" if study.phase is Phase.PAUSED else f"{error.message}; {way}"
    return ""


def confirming_rows(past: Past, trials: Sequence[Trial]) -> Assign | Move:
    """Return the next step of confirming a plan by the load: a window, or in the end the hold.

    If a load can be requested each row is measured at its own. If not, windows at any arriving
    loads count, also those of earlier rounds: a row is held up to the highest load that they
    confirm. Above that load another setting confirmed there is held, or else the baseline.
    """
    past = expecting(past)
    study = past.study
    if study.plan is None or past.evidence.limits is None:
        return Move(Phase.BASELINE, "the baseline is missing")
    if study.terms.plan_by == HOUR:
        return confirming_hours(past, study.plan)
    plan = study.plan
    row = _due(past, plan)
    if row is not None and len(of_this_phase(study, trials)) < CONFIRM_MOST:
        at = plan.context(row) if plan.by in study.askable else {plan.by: past.context[plan.by]}
        few = _few_baselines(past, plan, row, at[plan.by]) or past.at(at).limits is None
        context = at if plan.by in study.askable else ANYWHERE
        return measuring(study, study.baseline if few else row.setting, at, context)
    kept = _kept(past, plan)
    why = "; ".join(_texts(past, plan, kept))
    if all(study.rests(row.setting) for row in kept.rows):
        return hold_baseline(study, past.evidence, f"no row of the plan is confirmed ({why})")
    return Move(Phase.HOLDING, why, kept)


def _few_baselines(past: Past, plan: Plan, row: Row, load: float) -> bool:
    """Return whether the baseline is to be measured: a gain that is open needs as many windows of both."""
    reach, least = _reach(past, plan, row), CONFIRM_WINDOWS
    if reach.duel is not None and not reach.result.won:
        own = own_windows(past, row.setting, _low(plan, row))
        least = max(least, sum(t.solid for _, t in own))
    return len(baseline_windows(past, load)) < least


def row_duel(past: Past, plan: Plan, row: Row) -> Duel | None:
    """Return the metrics of baseline and setting in the windows that confirm a row; None without any."""
    study = past.study
    if not study.terms.plan_by:
        return duel(study, past.trials, row.setting, confirmation_load(study, plan, row))
    if study.terms.plan_by == HOUR:
        return hour_duel(past, row)
    return None if past.study.rests(row.setting) else reach_of(past, row.setting).duel


def _due(past: Past, plan: Plan) -> Row | None:
    """Return the row to measure: the lowest open one for the present load, or for a higher one.

    Of a load that moves, see `_begun`. Nothing is measured for a row above a confirmed one: the
    present load would not show that row's own.
    """
    now = past.context.get(plan.by)
    if plan.by in past.study.askable:
        return next((row for row in plan.rows if _is_open(past, plan, row)), None)
    if now is None:
        return None
    if past.moves(plan.by):
        return _begun(past, plan)
    for row in plan.rows[plan.row({plan.by: now}) :]:
        if _is_open(past, plan, row):
            return row
        if _reach(past, plan, row).result.won:
            return None
    return None


def _begun(past: Past, plan: Plan) -> Row | None:
    """Return the open row to measure where the load moves from window to window: the last, or the highest.

    Its windows meet one load after the other. To measure the row of the last load each time could
    miss the loads of all rows.
    """
    own = windows(past.trials, phase=Phase.CONFIRMING, least=Worth.EVIDENCE)
    rows = [row for row in reversed(plan.rows) if _is_open(past, plan, row)]
    last = [row for row in rows for t in own[-1:] if t.tries(row.setting)]
    return next(iter([*last, *rows]), None)


def _is_open(past: Past, plan: Plan, row: Row) -> bool:
    """Return whether further windows may confirm a row up to its load; their number is limited."""
    if past.study.rests(row.setting) or row.at is None:
        return False
    reach = _reach(past, plan, row)
    spent = len(own_windows(past, row.setting, _low(plan, row)))
    return not reach.result.lost and reach.load * LOAD_REACH < row.at and spent < MOST_WINDOWS


def _reach(past: Past, plan: Plan, row: Row) -> Reach:
    if past.study.rests(row.setting):
        return Reach(math.inf, THE_BASELINE)
    return reach_of(past, row.setting, _low(plan, row))


def _low(plan: Plan, row: Row) -> float:
    place = plan.rows.index(row)
    return plan.rows[place - 1].below if place else 0.0


def _kept(past: Past, plan: Plan) -> Plan:
    """Return a plan with each row up to its confirmed load; above, other rows or the baseline."""
    study, rows, low = past.study, list[Row](), 0.0
    tried = {
        setting_key(t.setting): t.setting for t in windows(past.trials, phase=Phase.CONFIRMING)
    }
    others = [(reach_of(past, s), s) for s in tried.values() if not study.rests(s)]
    others.sort(key=lambda other: -other[0].saving(study))
    for row in plan.rows:
        mine = others if study.rests(row.setting) else _best_first(past, plan, row, others)
        while low < row.below:
            # A row narrower than half a band would only add changes of the setting.
            least = min(row.below, low * LOAD_REACH)
            reached = next((k for k in mine if low < k[0].load * LOAD_REACH >= least), None)
            if reached is None:
                rows.append(Row(row.below, study.baseline))
            else:
                below = min(row.below, reached[0].load * LOAD_REACH)
                at = min(reached[0].load, row.at or math.inf)
                own = at if low <= at < below else None
                rows.append(Row(below, reached[1], row.gain, own, bursts=reached[0].bursts))
            low = rows[-1].below
    met = [
        row
        for row, after in zip(rows, [*rows[1:], None], strict=True)
        if after is None or setting_key(after.setting) != setting_key(row.setting)
    ]
    return replace(plan, rows=tuple(met)) if len(met) > 1 else Plan.single(met[0].setting)


def _best_first(
    past: Past, plan: Plan, row: Row, others: Sequence[tuple[Reach, Setting]]
) -> list[tuple[Reach, Setting]]:
    """Return the confirmed settings for a row: its own first, unless one reaches further and saves more."""
    own, study = _reach(past, plan, row), past.study
    better = any(
        reach.load >= own.load and reach.saving(study) > own.saving(study) for reach, _ in others
    )
    return [*others] if better and own.load else [(own, row.setting), *others]


def why_grow(past: Past, policy: Policy) -> str:
    """Return why a study that holds a plan by the load should continue; empty if it should not.

    A load has arrived at which the baseline is held, or a row that was confirmed at a quite
    different load, and there is something to try or to confirm. Where too few requests arrived to
    measure the baseline, more arrive now.
    """
    past = expecting(past)
    study, by = past.study, past.study.terms.plan_by
    if study.plan is None or by not in past.context:
        return ""
    now = {by: past.context[by]}
    held, load = _held(study.plan, now), in_words(now)
    if not study.rests(held.setting) and is_at(now, study.plan.context(held)):
        return ""
    answer = policy.suggest(past)
    if isinstance(answer, Try):
        if refusal_of(past, past.trials, answer) is not None:
            return ""
        return f"no row is confirmed at {load}, and more trials are needed: {answer.why}"
    if isinstance(answer, Done) and answer.plan.by:
        row = _held(answer.plan, now)
        if by == HOUR:
            return f"a row for {load} is not confirmed yet" if hour_is_open(past, row) else ""
        if _is_open(past, answer.plan, row) and _due(past, answer.plan) == row:
            return f"a row for {load} is not confirmed yet"
    before = max((t.ran_at.get(by, 0.0) for t in past.trials), default=0.0)
    if past.limits is None and by != HOUR and now[by] > before * LOAD_STEP**2:
        return f"the baseline is not measured yet, and the load has risen: {load}"
    return ""


def expecting(past: Past) -> Past:
    """Return the past at the load that a window is likely to meet, if trials cannot request one."""
    by = past.study.terms.plan_by
    reported = by != HOUR and by not in past.study.askable and by in past.context
    return past.expecting(by) if reported else past


def _held(plan: Plan, load: Context) -> Row:
    return plan.rows[plan.row(load)]


def _instead(past: Past, plan: Plan, row: Row, kept: Plan) -> list[str]:
    """Return the confirmed settings that are held instead of a baseline's row."""
    low, by = _low(plan, row), past.study.terms.plan_by
    return [
        f"{render_setting(k.setting)}: confirmed up to {by} = {k.below / LOAD_REACH:.4g}"
        for k in kept.rows
        if low < k.below < row.below and not past.study.rests(k.setting)
    ]


def _texts(past: Past, plan: Plan, kept: Plan) -> list[str]:
    texts, by = [], past.study.terms.plan_by
    for row in plan.rows:
        if past.study.rests(row.setting):
            texts += _instead(past, plan, row, kept)
            continue
        reach = _reach(past, plan, row)
        waits = "not confirmed yet: its load did not last for a window"
        shown = reach.result if reach.result != PENDING else ConfirmResult(False, False, waits)
        text = row_text(past.study, plan, row, shown)
        held = kept.rows[kept.row(plan.context(row))].setting
        if setting_key(held) == setting_key(row.setting):
            texts.append(text)
        elif reach.load:
            texts.append(f"{text}, up to {by} = {reach.load:.4g}; above, {render_setting(held)}")
        else:
            texts.append(f"{render_setting(held)} is held instead of {text}")
    return list(dict.fromkeys(texts))
