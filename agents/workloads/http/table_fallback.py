"""Plain decoding instead of an engine's table while the engine accepts too few drafted tokens.

An engine that holds the table itself (vLLM, SGLang) reports no single step, but its counters give
the accepted tokens per step. The acceptance at each length when the table came into force is the
reference. Switching to plain decoding or back takes as long as a change of the knob, a restart, so
drafting is retried for about 1 % of the time. The agent keeps the reference with its hold: a new
agent must not take a collapsed acceptance as normal. All constants are our own choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agents.target.side import Accepted
from agents.workloads.http.exposition import Snapshot
from tuner.core import Clock, Knob, Plan

ACCEPTED = "accepted_per_step"
LOOK_S = 5.0
ENOUGH_STEPS = 1000.0
"""Number of verified steps at a length for its reference, and for each comparison with it."""
COLLAPSED = 0.5
"""Below this share of the reference drafting does not pay: a gain of a third becomes a loss of a fifth."""
RETRY_SHARE = 0.01


@dataclass(slots=True)
class _Accepted:
    """Accepted tokens of the steps at a length: the reference, and the latest."""

    reference: tuple[float, float] = (0.0, 0.0)
    latest: tuple[float, float] = (0.0, 0.0)

    def add(self, accepted: float, steps: float) -> bool:
        """Add steps; return whether acceptance has collapsed against the reference."""
        if self.reference[1] < ENOUGH_STEPS:
            self.reference = (self.reference[0] + accepted, self.reference[1] + steps)
            return False
        self.latest = (self.latest[0] + accepted, self.latest[1] + steps)
        if self.latest[1] < ENOUGH_STEPS:
            return False
        usual, now = (tokens / count for tokens, count in (self.reference, self.latest))
        self.latest = (0.0, 0.0)
        return now < COLLAPSED * usual


@dataclass(slots=True)
class TableFallback:
    """Decide between an engine's table and plain decoding, look by look.

    `snapshot` reads the engine's counters; `knob` is the length that the table sets.
    """

    snapshot: Callable[[], Snapshot]
    knob: Knob
    clock: Clock
    plain: bool = False
    _plan: Plan | None = None
    _before: Snapshot | None = None
    _looked_s: float = 0.0
    _plain_since_s: float = 0.0
    _lengths: dict[int, _Accepted] = field(default_factory=dict)

    @property
    def reference(self) -> Accepted:
        """The acceptance of each length that later steps are compared with."""
        seen = {length: one.reference for length, one in self._lengths.items()}
        return {length: pair for length, pair in seen.items() if pair[1] >= ENOUGH_STEPS}

    def look(self, plan: Plan, reference: Accepted) -> bool:
        """Return whether plain decoding should replace the plan's table.

        `reference` is that of an agent that ran before.

        Raises:
            MeasurementError: the engine does not report its counters.
        """
        now_s = self.clock.monotonic()
        if plan != self._plan:
            self._plan, self._before, self.plain = plan, None, False
            self._lengths = {length: _Accepted(pair) for length, pair in reference.items()}
        if self.plain:
            if RETRY_SHARE * (now_s - self._plain_since_s) >= 2.0 * self.knob.cost.seconds:
                self.plain, self._before = False, None
            return self.plain
        if self._before is not None and now_s - self._looked_s < LOOK_S:
            return False
        before, now = self._before, self.snapshot()
        self._before, self._looked_s = now, now_s
        if before is not None and self._has_collapsed(plan, before, now):
            self.plain, self._plain_since_s = True, now_s
        return self.plain

    def _has_collapsed(self, plan: Plan, before: Snapshot, now: Snapshot) -> bool:
        """Judge the steps between two looks, if the load was in the same row at both."""
        parts = before.ratios.get(ACCEPTED), now.ratios.get(ACCEPTED)
        if None in parts or before.load is None or now.load is None:
            return False
        (accepted, steps), (accepted_now, steps_now) = parts  # type: ignore[misc]
        rows = {plan.row({plan.by: max(1.0, look.load or 0.0)}) for look in (before, now)}
        if len(rows) > 1 or steps_now <= steps:  # also after a restart, which resets them
            return False
        length = int(plan.rows[rows.pop()].setting[self.knob.name])
        seen = self._lengths.setdefault(length, _Accepted())
        return bool(length) and seen.add(max(0.0, accepted_now - accepted), steps_now - steps)
