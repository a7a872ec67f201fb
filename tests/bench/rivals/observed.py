"""The past as observed means, without their errors.

The rivals choose by it; they differ only in the next setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from tuner.core import (
    Candidate,
    Done,
    Limit,
    Objective,
    Past,
    Plan,
    Setting,
    SettingKey,
    Space,
    TrialState,
    Wait,
    setting_key,
)

LEAST_RATIO = 1e-9
"""The least ratio to a limit: smaller values, and those not above zero, count as this ratio."""


@dataclass(frozen=True, slots=True)
class ObservedSetting:
    """One setting with its observed means.

    `loss` is the objective, with its sign changed if more is better. `breaches` has for each
    limit the logarithm of the ratio to it: at or below 0 if the limit is kept.
    """

    setting: Setting
    loss: float
    breaches: tuple[float, ...]

    @property
    def feasible(self) -> bool:
        """Whether the means keep every limit."""
        return all(breach <= 0.0 for breach in self.breaches)


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed settings, and those already tried: never the whole space.

    `seen` has the observed settings in the order of their first window, the baseline first. `tried`
    are settings of the space, running ones included. `spent` is the number of trials.
    """

    space: Space
    seen: Mapping[SettingKey, ObservedSetting]
    tried: frozenset[SettingKey]
    spent: int

    def untried(self, setting: Setting) -> bool:
        """Return whether a setting of the space has not been tried yet."""
        return setting_key(setting) not in self.tried

    def some_untried(self, most: int, seed: int) -> list[Setting]:
        """Return the untried settings in the grid's order; of a larger space `most` drawn at random."""
        if self.space.size <= most:
            return [s for s in self.space.grid() if self.untried(s)]
        count = len(self.space.only) or math.prod(len(k.values) for k in self.space.knobs)
        drawn = Random(seed).sample(range(count), min(count, most + len(self.tried)))
        drawn_settings = (self.space.canonical(_numbered(self.space, i)) for i in drawn)
        return [s for s in {setting_key(s): s for s in drawn_settings}.values() if self.untried(s)][
            :most
        ]

    def nearest(self, at: Setting, lengths: Mapping[str, int]) -> tuple[Setting, float]:
        """Return the untried setting nearest to a point, and its distance.

        The distance is the sum over the knobs of the rungs between, each knob's divided by its
        length; of several, the first in the grid's order. Only a space that lists its settings is
        scanned. Any other is searched outwards from the point, past no more settings than were
        tried.
        """
        knobs = self.space.knobs
        start = [k.index(at[k.name]) for k in knobs]

        def away(places: Sequence[int]) -> float:
            rungs = zip(knobs, places, start, strict=True)
            return sum((abs(place - own) / lengths[k.name] for k, place, own in rungs), 0.0)

        if self.space.only:
            left = [s for s in self.space.only if self.untried(s)]
            far = [away([k.index(s[k.name]) for k in knobs]) for s in left]
            least = min(range(len(left)), key=far.__getitem__)
            return left[least], far[least]
        ahead, met = [(0.0, tuple(start))], {tuple(start)}
        while True:
            distance, places = heappop(ahead)
            setting = {k.name: k.values[place] for k, place in zip(knobs, places, strict=True)}
            if self.untried(setting) and self.space.canonical(setting) == setting:
                return setting, distance
            for further in _further(self.space, start, places):
                if further not in met:
                    met.add(further)
                    heappush(ahead, (away(further), further))


def observed(past: Past) -> Observed | Wait | Done:
    """Return the observed past while a setting can be chosen, else the answer.

    Done once the trials are spent or every setting was tried: with the setting of the best observed
    mean among those whose means keep the limits, or the baseline if there are none.
    """
    study, limits = past.study, past.limits
    if limits is None:
        return Wait("the baseline has not been measured yet")
    by_key: dict[SettingKey, ObservedSetting] = {}
    deployable: list[ObservedSetting] = []
    for candidate in past.evidence.candidates:
        observation = _observation(candidate, study.objective, limits)
        if observation is not None:
            by_key[setting_key(candidate.setting)] = observation
            if candidate.deployable and observation.feasible:
                deployable.append(observation)
    tried = frozenset(
        setting_key(t.setting) for t in past.trials if t.state is not TrialState.ABORTED
    )
    left = study.space.size > len(tried)
    if past.left > 0 and left:
        return Observed(study.space, by_key, tried, past.spent)
    if past.running:
        return Wait("the last trial is still running")
    best = min(deployable, key=lambda o: o.loss, default=None)
    why = "every setting was tried" if not left else "all trials are used"
    if best is None:
        return Done(Plan.single(study.baseline), f"{why}; none met the limits")
    return Done(Plan.single(best.setting), f"{why}; the best that met the limits")


def _further(
    space: Space, start: Sequence[int], places: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield the points one rung further from the start, along each knob."""
    for i, knob in enumerate(space.knobs):
        ways = (-1, 1) if places[i] == start[i] else (1 if places[i] > start[i] else -1,)
        for way in ways:
            if 0 <= places[i] + way < len(knob.values):
                yield (*places[:i], places[i] + way, *places[i + 1 :])


def _numbered(space: Space, number: int) -> Setting:
    """Return the setting at an index of the grid's order."""
    if space.only:
        return space.only[number]
    places: list[int] = []
    for knob in reversed(space.knobs):
        number, place = divmod(number, len(knob.values))
        places.append(place)
    order = zip(space.knobs, reversed(places), strict=True)
    return {knob.name: knob.values[place] for knob, place in order}


def _observation(
    candidate: Candidate, objective: Objective, limits: tuple[Limit, ...]
) -> ObservedSetting | None:
    """Return a candidate's means, None if one is missing."""
    means = {name: estimate.mean for name, estimate in candidate.estimates.items()}
    score = objective.score(means)
    if score is None or any(limit.metric not in means for limit in limits):
        return None
    breaches = tuple(limit.sign * _breach(means[limit.metric], limit.value) for limit in limits)
    return ObservedSetting(candidate.setting, objective.sign * score, breaches)


def _breach(value: float, limit: float) -> float:
    """Return log(value / limit), finite even for a value not above zero; else the difference."""
    return math.log(max(value / limit, LEAST_RATIO)) if limit > 0.0 else value - limit
