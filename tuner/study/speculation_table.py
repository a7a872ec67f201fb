"""Confirms a table of speculation lengths as a whole, under a load that crosses its boundaries.

Its rows are confirmed one by one, each under its own load; the cost of switching itself shows only
here. In vLLM a threshold to length 0 cut 232 tokens/s to 24–157 (issue 49548). The table, plain
decoding (the baseline) and the best single length of its rows take turns under the same load.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner import guard
from tuner.core import (
    NO_TABLE,
    Past,
    Plan,
    Role,
    Setting,
    SettingKey,
    Study,
    Trial,
    TrialState,
    pool_windows,
    render_setting,
    setting_key,
    windows,
)
from tuner.study.moves import Assign
from tuner.study.sequential_tests import proven_t

ROUNDS, MOST_ROUNDS = 3, 6
"""Windows per arm that decide, and the most if they do not: our choice."""
ALONE = 1.0
"""The load at the start of a round: one request."""
MOST_SPENT = 3
"""Further windows that an arm may lose to disturbances."""
LENGTHS = frozenset({Role.SPECULATION_LENGTH, Role.DRAFT})


@dataclass(frozen=True, slots=True)
class TableResult:
    """The plan to be held and why; None if neither the table nor a single length qualifies."""

    plan: Plan | None
    why: str


def switches(study: Study, plan: Plan) -> bool:
    """Return whether a plan is a table of speculation lengths, and a trial can send load across it."""
    first, loads = plan.rows[0].setting, [row.at for row in plan.rows if row.at is not None]
    differ = {n for row in plan.rows for n, value in row.setting.items() if first.get(n) != value}
    lengths = {knob.name for knob in study.space.knobs if knob.role in LENGTHS}
    moves = len(loads) == len(plan.rows) and max(loads) > ALONE
    return moves and plan.by in study.askable and bool(differ) and differ <= lengths


def confirm_table(past: Past, plan: Plan, phase: Sequence[Trial]) -> Assign | TableResult:
    """Return the next window under the crossing load, or the result of all windows."""
    rounds = _Rounds(past, plan, phase)
    return rounds.unfollowed() or rounds.missing() or rounds.result()


@dataclass(frozen=True, slots=True)
class _Gain:
    """The relative gain of one arm over another in the windows of the same rounds."""

    mean: float
    low: float

    def __str__(self) -> str:
        return f"{100.0 * abs(self.mean):.1f} % {'better' if self.mean >= 0.0 else 'worse'}"


class _Rounds:
    def __init__(self, past: Past, plan: Plan, phase: Sequence[Trial]) -> None:
        self._past, self._study, self._plan = past, past.study, plan
        self._load = plan.crossing(ALONE, past.study.terms.max_window_s)
        self._own = windows(phase, requested=self._load)
        self._table = [t for t in self._own if t.plan == plan]
        drafted = [r.setting for r in plan.rows if not past.study.rests(r.setting)]
        self._singles = {setting_key(s): s for s in drafted}

    def unfollowed(self) -> TableResult | None:
        """Return the result without a table test, if the workload cannot switch rows itself."""
        if any(NO_TABLE in t.reason for t in self._table if t.state is TrialState.FAILED):
            why = (
                f"not confirmed as a table: the workload {NO_TABLE}, so the agent changes the rows"
            )
            return TableResult(self._plan, why)
        return None

    def missing(self) -> Assign | None:
        """Return the next window; None once there are enough."""
        base, singles = self._of(self._study.baseline), [*self._singles.values()]
        if all(_good(own) or _spoilt(own) for own in map(self._of, singles)):
            singles = [] if (best := self._best()) is None else [self._singles[best]]
        arms = [base, *map(self._of, singles), self._table]
        left = [arm for arm in arms[1:] if not _spoilt(arm)]
        if _spoilt(base) or not left:
            return None
        fewest = min([base, *left], key=lambda arm: len(_good(arm)))
        n = len(_good(fewest))
        if n >= MOST_ROUNDS or (n >= ROUNDS and self._decided()):
            return None
        if fewest is self._table:
            return self._measuring(self._plan.rows[0].setting, "the table", self._plan)
        if fewest is base:
            return self._measuring(self._study.baseline, "the baseline")
        setting = singles[next(n for n, arm in enumerate(arms[1:]) if arm is fewest)]
        return self._measuring(setting, f"{render_setting(setting)} throughout")

    def result(self) -> TableResult:
        """Return the result of these windows: the table, its best single length, or neither.

        The table must beat plain decoding in the mean, since each of its rows is proven to. A
        single length is proven at one load alone, and must be proven here. The better of the two is
        held.
        """
        base = self._of(self._study.baseline)
        if spoilt := _spoilt(base):
            return TableResult(None, f"the baseline was not measured {self._under}: {spoilt}")
        spoilt = _spoilt(self._table) or self._breaks(self._table)
        over, single = self._gain(self._table, base), self._single(base)
        seen = [spoilt or f"{over} than the baseline"]
        ahead = True
        if single is not None and not spoilt:
            gain = self._gain(self._table, self._of(single))
            seen.append(f"{gain} than {render_setting(single)} throughout")
            ahead = gain.mean > 0.0
        if not spoilt and over.mean > 0.0 and ahead:
            return TableResult(self._plan, f"the table {self._under}: {', '.join(seen)}")
        why = f"the table is not held: {', '.join(seen)} {self._under}"
        if single is None:
            return TableResult(None, why)
        gain = self._gain(self._of(single), base)
        text = f"{render_setting(single)} throughout is {gain} than the baseline"
        return TableResult(Plan.single(single), f"{why}; {text}")

    def _single(self, base: Sequence[Trial]) -> Setting | None:
        """Return the best single length, where it is proven better than plain decoding."""
        best = self._best()
        if best is None:
            return None
        own = self._of(self._singles[best])
        proven = self._gain(own, base).low > 0.0 and not self._breaks(own)
        return self._singles[best] if proven else None

    def _decided(self) -> bool:
        """Return whether each arm is proven better than plain decoding, or is not better at all."""
        base, best = self._of(self._study.baseline), self._best()
        arms = [] if best is None else [self._of(self._singles[best])]
        arms += [] if _spoilt(self._table) else [self._table]
        gains = [self._gain(arm, base) for arm in arms]
        return all(gain.low > 0.0 or gain.mean <= 0.0 for gain in gains)

    def _best(self) -> SettingKey | None:
        """Return the best single length so far."""
        scores: Mapping[SettingKey, float] = {
            key: statistics.fmean(map(self._score, good))
            for key, setting in self._singles.items()
            if not _spoilt(own := self._of(setting)) and (good := _good(own))
        }
        return max(scores, key=lambda key: scores[key], default=None)

    def _of(self, setting: Setting) -> list[Trial]:
        """Return the confirming windows of a setting."""
        return windows(self._own, setting)

    def _gain(self, own: Sequence[Trial], other: Sequence[Trial]) -> _Gain:
        """Return the gain by paired rounds, whose windows have the same load and phase.

        The lengths share the level of each look, as the best of them is taken.
        """
        pairs = zip(_good(own), _good(other), strict=False)
        logs = [self._score(a) - self._score(b) for a, b in pairs]
        if len(logs) < 2:
            return _Gain(math.expm1(logs[0]) if logs else 0.0, -math.inf)
        mean, spread = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
        least = proven_t(len(logs) - 1, max(0, len(logs) - ROUNDS), len(self._singles))
        return _Gain(math.expm1(mean), math.expm1(mean - least * spread))

    def _score(self, window: Trial) -> float:
        """Return the logarithm of the objective; greater is better."""
        score = self._study.objective.score(window.shown, window.ran_at)
        if score is None or score.mean <= 0.0:
            return -math.inf
        return -self._study.objective.sign * math.log(score.mean)

    def _breaks(self, own: Sequence[Trial]) -> str:
        """Return the limits that are not proven to be kept, as text; empty if all are."""
        shown = pool_windows([t.shown for t in _good(own)], self._study.quantities)
        limits = self._past.at(self._load).limits
        kept = guard.may_hold(shown, limits)
        return "" if kept else "its windows do not prove that it meets the limits"

    def _measuring(self, setting: Setting, what: str, plan: Plan | None = None) -> Assign:
        """Return the assignment of one confirming window."""
        return Assign(setting, f"confirming: measuring {what} {self._under}", self._load, plan)

    @property
    def _under(self) -> str:
        """Describe the load of the confirming windows."""
        low, high, _ = self._load.values()
        return f"under a load that goes from {low:g} to {high:g} {self._plan.by} and back"


def _good(arm: Sequence[Trial]) -> list[Trial]:
    """Return the trials that are evidence and were not aborted early."""
    return [t for t in arm if t.state.evidence and not t.censored]


def _spoilt(arm: Sequence[Trial]) -> str:
    """Return why an arm cannot win; empty where it can."""
    bad = next((t for t in arm if t.censored), None)
    failed = [t for t in arm if t.state is TrialState.FAILED]
    if bad is None and len(failed) >= guard.MOST_FAILURES:
        bad = failed[-1]
    if bad is None and len(arm) - len(_good(arm)) > MOST_SPENT:
        bad = arm[-1]
    return "" if bad is None else f"trial {bad.number} {bad.state}: {bad.reason}"
