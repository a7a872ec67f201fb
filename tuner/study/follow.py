"""Studies whose plan follows the load: rows confirmed each at its own load, and plans that grow.

Where the load is the world's nothing waits for it. What is confirmed is held, with the baseline in the
place of every other row; once a load comes by for which no row is held, the study continues at that.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tuner.core import (
    ANYWHERE,
    LOAD_REACH,
    Context,
    Done,
    LoadHistory,
    MetricSample,
    Past,
    Phase,
    Plan,
    Policy,
    Row,
    Store,
    Study,
    Trial,
    Try,
    confirms_at,
    counted,
    is_at,
    load_band,
    pool_windows,
    render_setting,
    setting_key,
)
from tuner.study.confirm import (
    CONFIRM_MOST,
    CONFIRM_WINDOWS,
    PENDING,
    ConfirmResult,
    Duel,
    judged,
    measuring,
    row_text,
)
from tuner.study.derived import Derived
from tuner.study.moves import Assign, Move, hold_baseline, in_words, of_this_phase

log = logging.getLogger(__name__)

MOST_HELD = 2000
"""Of this number of held windows, the latest, the loads are counted: a day and a half of one a minute."""


@dataclass
class PlanGrowth:
    """Whether plans by the load are to grow: asked at every poll, worked out once for each band of load."""

    store: Store
    policy: Callable[[str], Policy]
    _by_band: Derived[dict[int, str]] = field(default_factory=Derived)

    def past(self, study: Study, trials: Sequence[Trial], now: Context) -> Past:
        """Return a study's past, with the loads that were seen where its plan goes by one."""
        if not study.terms.plan_by:
            return Past(study=study, trials=tuple(trials), context=now)
        metric = study.objective.metric
        held = self.store.observations.samples(study.id, metric, study.created_at, MOST_HELD)
        seen = history(study, trials, held)
        return Past(study=study, trials=tuple(trials), context=now, loads=seen)

    def why(
        self, study: Study, count: int, now: Context, trials: Callable[[str], Sequence[Trial]]
    ) -> str:
        """Return why a holding study should search at the present load; empty where it should not.

        `count` is how many trials it has. A policy that fails is logged: the hold continues.
        """
        by = study.terms.plan_by
        if by not in now:
            return ""
        known, band = self._by_band.get(study, count, dict), load_band(now[by])
        if band not in known:
            past = self.past(study, trials(study.id), now)
            known[band] = ""
            try:
                known[band] = why_grow(past, self.policy(study.policy))
            except Exception:  # whatever a plug-in raises must not end a hold
                log.exception("event=policy_failed policy=%s study=%s", study.policy, study.id)
        return known[band]


def history(study: Study, trials: Sequence[Trial], held: Sequence[MetricSample]) -> LoadHistory:
    """Return for how long each load was seen: in held windows, and in trials that asked for none."""
    by = study.terms.plan_by
    seen = [(s.context[by], s.seconds) for s in held if by in s.context]
    windows = (t for t in trials if t.measurement is not None and not t.context)
    seen += [
        (t.ran_at[by], t.measurement.seconds) for t in windows if by in t.ran_at and t.measurement
    ]
    return LoadHistory.of(seen)


def confirming_rows(past: Past, trials: Sequence[Trial]) -> Assign | Move:
    """Return the next step of confirming a plan by the load: a window at a row's load, or the held setting.

    Windows of earlier rounds count, as far as they are at a row's load. Where a row is not confirmed and
    its load can neither be requested nor comes by now, what was confirmed there before is held, else the
    baseline.
    """
    study = past.study
    if study.plan is None or past.evidence.limits is None:
        return Move(Phase.BASELINE, "the baseline is missing")
    plan, here = study.plan, of_this_phase(study, trials)
    results = [row_result(past, plan, row, trials) for row in plan.rows]
    for row, result in zip(plan.rows, results, strict=True):
        if result == PENDING and len(here) < CONFIRM_MOST and _comes_by(past, row):
            at = plan.context(row)
            asked = at if plan.by in study.askable else ANYWHERE
            few = len(_rival(study, _at(study, trials, row.at))) < CONFIRM_WINDOWS
            return measuring(study, study.baseline if few else row.setting, at, asked)
    kept = _kept(past, plan, results, trials)
    why = "; ".join(_texts(study, plan, results, kept))
    if all(study.rests(row.setting) for row in kept.rows):
        return hold_baseline(study, past.evidence, f"no row of the plan is confirmed ({why})")
    return Move(Phase.HOLDING, why, kept)


def row_result(past: Past, plan: Plan, row: Row, trials: Sequence[Trial]) -> ConfirmResult:
    """Return how a row stands, by all confirming windows at its load and the baseline's of any phase."""
    study, windows = past.study, _at(past.study, trials, row.at)
    rival = _rival(study, windows)
    if len(rival) < CONFIRM_WINDOWS and not study.rests(row.setting):
        return PENDING
    own = [t for t in windows if t.phase is Phase.CONFIRMING]
    return judged(study, row.setting, own, past.at(plan.context(row)), rival)


def row_duel(past: Past, row: Row) -> Duel | None:
    """Return what baseline and setting showed in the windows that a row is confirmed by."""
    study, windows = past.study, _at(past.study, past.trials, row.at)
    own = [t for t in windows if t.phase is Phase.CONFIRMING and t.solid and t.tries(row.setting)]
    rival = _rival(study, windows)
    if not own or not rival:
        return None
    before, after = (
        pool_windows([t.shown for t in some], study.quantities) for some in (rival, own)
    )
    return before, after


def _at(study: Study, trials: Sequence[Trial], load: float | None) -> list[Trial]:
    """Return the windows at a load."""
    by, windows = study.terms.plan_by, counted(study, trials)
    return [t for t in windows if load is not None and confirms_at(t.ran_at.get(by, 0.0), load)]


def _rival(study: Study, windows: Sequence[Trial]) -> list[Trial]:
    """Return the baseline's windows of any phase: they did not select it."""
    return [t for t in windows if t.solid and t.tries(study.baseline)]


def _kept(
    past: Past, plan: Plan, results: Sequence[ConfirmResult], trials: Sequence[Trial]
) -> Plan:
    """Return a plan with its confirmed rows; instead of others what was confirmed before."""
    study, rows = past.study, list[Row]()
    for row, result in zip(plan.rows, results, strict=True):
        low = rows[-1].below if rows else 0.0
        if not result.won and (former := _former(past, plan, low, row, trials)) is not None:
            rows.append(former)
            low = former.below
        if low < row.below:
            at = row.at if row.at is not None and low <= row.at else None
            rows.append(row if result.won else replace(row, setting=study.baseline, at=at))
    met = [
        row
        for row, after in zip(rows, [*rows[1:], None], strict=True)
        if after is None or setting_key(after.setting) != setting_key(row.setting)
    ]
    return replace(plan, rows=tuple(met)) if len(met) > 1 else Plan.single(met[0].setting)


def _former(past: Past, plan: Plan, low: float, row: Row, trials: Sequence[Trial]) -> Row | None:
    """Return a row of what was confirmed before: at a higher load for all of the range, else for a part."""
    study, by = past.study, plan.by
    windows = [t for t in counted(study, trials) if t.phase is Phase.CONFIRMING and t.solid]
    points = {(t.ran_at.get(by, 0.0), setting_key(t.setting)) for t in windows}
    reaching = [p for p in sorted(points) if p[0] * LOAD_REACH >= row.below]
    partial = [p for p in sorted(points, reverse=True) if low < p[0] * LOAD_REACH < row.below]
    for load, key in (*reaching, *partial):
        below = min(row.below, load * LOAD_REACH)
        there = Plan((Row(math.inf, dict(key), at=load),), by)
        if not study.rests(dict(key)) and row_result(past, there, there.rows[0], trials).won:
            return Row(below, dict(key), row.gain, load if low <= load < below else None)
    return None


def why_grow(past: Past, policy: Policy) -> str:
    """Return why a study that holds a plan by the load should continue; empty where it should not.

    A load has come by at which the baseline is held, or a row that was confirmed at quite another load, and
    there is something to try or to confirm.
    """
    study, by = past.study, past.study.terms.plan_by
    now = past.context.get(by)
    if study.plan is None or now is None:
        return ""
    held, load = _held(study, study.plan, now), in_words({by: now})
    if not study.rests(held.setting) and is_at({by: now}, study.plan.context(held)):
        return ""
    answer = policy.suggest(past)
    if isinstance(answer, Try):
        return f"no row is confirmed at {load}, and more trials are needed: {answer.why}"
    if isinstance(answer, Done) and answer.plan.by:
        row = _held(study, answer.plan, now)
        new = not study.rests(row.setting) and _comes_by(past, row)
        if new and row_result(past, answer.plan, row, past.trials) == PENDING:
            return f"a row for {load} is not confirmed yet"
    return ""


def _held(study: Study, plan: Plan, load: float) -> Row:
    return plan.rows[plan.row({study.terms.plan_by: load})]


def _comes_by(past: Past, row: Row) -> bool:
    """Return whether a window at a row's load can be measured now."""
    by = past.study.terms.plan_by
    if by in past.study.askable:
        return True
    now = past.context.get(by)
    return now is not None and row.at is not None and confirms_at(now, row.at)


def _texts(study: Study, plan: Plan, results: Sequence[ConfirmResult], kept: Plan) -> list[str]:
    found = []
    for row, result in zip(plan.rows, results, strict=True):
        if study.rests(row.setting):
            continue
        waits = "not confirmed yet: its load has not occurred since"
        shown = result if result != PENDING else ConfirmResult(False, False, waits)
        text = row_text(study, plan, row, shown)
        there = render_setting(kept.rows[kept.row(plan.context(row))].setting)
        found.append(text if result.won else f"{there} is held instead of {text}")
    return list(dict.fromkeys(found))
