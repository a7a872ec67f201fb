"""Hill climbing, as a patient operator would do it by hand.

Coordinate descent from the default over the ladders of the knobs' values. The stride doubles while it
helps and halves while it does not; a step counts only if the observed means keep every limit. Our own
choice: the first stride is an eighth of a knob's ladder, downwards is tried first, and from a local
optimum the nearest untried setting is next.
"""

from __future__ import annotations

from tests.bench.rivals.observed import Observed, ObservedSetting, observed
from tuner.core import Knob, Past, Setting, Suggestion, Try, setting_key

FIRST_STRIDE = 8
"""The first stride is the length of the ladder divided by this."""


class Hillclimb:
    """Climbs knob by knob, and keeps settings that are observed to be better."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next step of the climb, or the best feasible setting at the end."""
        sofar = observed(past)
        if not isinstance(sofar, Observed):
            return sofar
        climb = _Climb(sofar)
        step = climb.step()
        if step is not None:
            return Try(step, "a step along one knob from the best so far")
        return Try(climb.nearest(), "no step along one knob helps; this is the nearest untried")


class _Climb:
    """The climb from the default, repeated along the observed settings up to the first unknown one."""

    def __init__(self, sofar: Observed) -> None:
        self._space, self._sofar = sofar.space, sofar
        self._listed = {setting_key(s) for s in sofar.space.only}
        self._at = sofar.space.default

    def step(self) -> Setting | None:
        """Return the next untried setting of the climb, None at a local optimum."""
        knobs = [k for k in self._space.knobs if len(k.values) > 1]
        strides = {k.name: max(1, len(k.values) // FIRST_STRIDE) for k in knobs}
        moved = True
        while moved:
            moved = False
            for knob in knobs:
                for way in (-1, 1):
                    before = self._at
                    needed = self._walk(knob, way, strides[knob.name])
                    if needed is not None:
                        return needed
                    if self._at is not before:
                        moved = True
                        break  # backwards is where the climb came from
            strides = dict.fromkeys(strides, 1)
        return None

    def nearest(self) -> Setting:
        """Return the untried setting with the fewest rungs to the present one."""
        nearest, _ = self._sofar.nearest(self._at, {k.name: 1 for k in self._space.knobs})
        return nearest

    def _walk(self, knob: Knob, way: int, stride: int) -> Setting | None:
        """Walk along one knob while it helps; return the next setting to measure, if any."""
        while stride >= 1:
            there = self._there(knob, way * stride)
            if there is not None and self._sofar.untried(there):
                return there
            if there is not None and self._better(there):
                self._at, stride = there, stride * 2
            else:
                stride //= 2
        return None

    def _there(self, knob: Knob, rungs: int) -> Setting | None:
        """Return the setting this many rungs along a knob, None if the space has none."""
        at = knob.index(self._at[knob.name]) + rungs
        if not 0 <= at < len(knob.values):
            return None
        there = {**self._at, knob.name: knob.values[at]}
        return there if not self._listed or setting_key(there) in self._listed else None

    def _better(self, there: Setting) -> bool:
        """Return whether a setting keeps the limits and beats the present one."""
        new, old = self._seen(there), self._seen(self._at)
        if new is None or not new.feasible:
            return False
        return old is None or not old.feasible or new.loss < old.loss

    def _seen(self, setting: Setting) -> ObservedSetting | None:
        return self._sofar.seen.get(setting_key(setting))
