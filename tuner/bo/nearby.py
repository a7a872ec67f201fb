"""Spaces too large to enumerate: a local search from the measured settings, with restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from random import Random

from tuner.bo.encoding import Grid, enumerate_grid, grid_of, most_rows
from tuner.bo.explore import worth
from tuner.bo.search import Search
from tuner.core import Knob, Setting, SettingKey, Space, Study, Value, setting_key

STARTS = 512
"""The number of random settings at the start."""

ROUNDS = 2
"""The number of rounds in which the neighbours of the best rows are added."""

BEST = 16
"""The number of best rows whose neighbours are added in a round."""

RUNGS = 64
"""For a knob with more values than this, half of the neighbours are its nearest values and half
are spread over all of them. The number is smaller if all neighbours together would exceed the size of
an enumerated space."""

LEAST_RUNGS = 8
"""The least number of neighbours per knob."""


def searched(
    study: Study,
    tried: Sequence[Setting],
    look: Callable[[Grid], Search],
    running: Sequence[Setting] = (),
) -> Search:
    """Return the search over a space, or over the promising settings of one too large to enumerate.

    The second starts with the measured and running settings, the baseline, every setting one knob away
    from a measured one or the baseline, and a random sample. Then the neighbours of the best rows are
    added, `ROUNDS` times. Neighbours differ in one knob, by any of its values while these are not too
    many. Deterministic by the study's seed.
    """
    space, chance = study.space, Random(study.seed)
    if space.size <= most_rows(space):
        return look(enumerate_grid(space))
    measured = [study.baseline, *tried]
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
    """Add the settings that are not listed yet."""
    for setting in settings:
        by_key.setdefault(setting_key(setting), setting)


def _neighbours(
    space: Space, setting: Setting, allowed: Set[SettingKey], rungs: int
) -> Iterator[Setting]:
    """Yield settings that differ in one knob, by one of `rungs` values; only those of a listed space."""
    for knob in space.knobs:
        for value in _rungs(knob, setting[knob.name], rungs):
            other = space.canonical({**setting, knob.name: value})
            if not allowed or setting_key(other) in allowed:
                yield other


def _rungs(knob: Knob, value: Value, most: int) -> list[Value]:
    """Return about `most` values of a knob, around one of them and spread over all."""
    count = len(knob.values)
    if count <= most:
        return list(knob.values)
    at, reach = knob.index(value), most // 4
    near = range(max(0, at - reach), min(count, at + reach + 1))
    spread = range(0, count, -(-count // (most // 2)))
    return [knob.values[i] for i in sorted({*near, *spread, count - 1})]


def _sample(space: Space, chance: Random) -> Iterator[Setting]:
    """Yield the random settings of the start."""
    if space.only:
        yield from chance.sample(space.only, min(STARTS, len(space.only)))
        return
    for _ in range(STARTS):
        yield space.canonical({knob.name: chance.choice(knob.values) for knob in space.knobs})
