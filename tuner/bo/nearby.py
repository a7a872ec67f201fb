"""Spaces too large to enumerate: a local search from what is known, with restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from random import Random

from tuner.bo.encoding import Grid, grid_of, most_rows
from tuner.bo.explore import worth
from tuner.bo.search import Search
from tuner.core import Evidence, Knob, Setting, SettingKey, Space, Study, Value, setting_key

STARTS = 512
"""So many settings drawn at random are looked at first."""

ROUNDS = 2
"""So often the search goes on to the neighbours of the best rows."""

BEST = 16
"""From so many rows it goes on."""

RUNGS = 64
"""Of a knob with more values than this the nearest are neighbours, and as many spread over all. Fewer,
where all the neighbours together would be more than are enumerated elsewhere."""

LEAST_RUNGS = 8
"""But no fewer than so many."""


def searched(
    study: Study,
    evidence: Evidence,
    look: Callable[[Grid], Search],
    running: Sequence[Setting] = (),
) -> Search:
    """Return the search over the settings worth looking at in a space too large to enumerate.

    What was measured or is being, the baseline, every setting one knob away from either, and a random
    sample; then the neighbours of the rows that are worth most, a few times over. Neighbours differ in one
    knob, by any of its values while these are not too many. Deterministic by the study's seed.
    """
    space, chance = study.space, Random(study.seed)
    measured = [study.baseline, *(c.setting for c in evidence.candidates)]
    by_key = {setting_key(s): s for s in (*measured, *running)}
    allowed = {setting_key(s) for s in space.only}
    most = most_rows(space) // ((len(measured) + ROUNDS * BEST) * len(space.knobs))
    rungs = min(RUNGS, max(most, LEAST_RUNGS))
    for setting in measured:
        _add(by_key, _neighbours(space, setting, allowed, rungs))
    _add(by_key, _sample(space, chance))
    search = look(grid_of(space, tuple(by_key.values())))
    for _ in range(ROUNDS):
        before = len(by_key)
        for row in worth(search).argsort(descending=True)[:BEST].tolist():
            _add(by_key, _neighbours(space, search.grid.settings[row], allowed, rungs))
        if len(by_key) == before:
            break
        search = look(grid_of(space, tuple(by_key.values())))
    return search


def _add(by_key: dict[SettingKey, Setting], settings: Iterator[Setting]) -> None:
    for setting in settings:
        by_key.setdefault(setting_key(setting), setting)


def _neighbours(
    space: Space, setting: Setting, allowed: Set[SettingKey], rungs: int
) -> Iterator[Setting]:
    """Yield settings that differ in one knob, by one of its `rungs`; of a listed space, those allowed."""
    for knob in space.knobs:
        for value in _rungs(knob, setting[knob.name], rungs):
            other = space.canonical({**setting, knob.name: value})
            if not allowed or setting_key(other) in allowed:
                yield other


def _rungs(knob: Knob, value: Value, most: int) -> list[Value]:
    """Return the values of a knob to look at from one of them, about `most`."""
    count = len(knob.values)
    if count <= most:
        return list(knob.values)
    at, reach = knob.index(value), most // 4
    near = range(max(0, at - reach), min(count, at + reach + 1))
    spread = range(0, count, -(-count // (most // 2)))
    return [knob.values[i] for i in sorted({*near, *spread, count - 1})]


def _sample(space: Space, chance: Random) -> Iterator[Setting]:
    if space.only:
        yield from chance.sample(space.only, min(STARTS, len(space.only)))
        return
    for _ in range(STARTS):
        yield space.canonical({knob.name: chance.choice(knob.values) for knob in space.knobs})
