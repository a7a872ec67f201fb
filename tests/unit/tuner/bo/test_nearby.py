"""The subset of settings that is examined in a space too large to enumerate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.builders import asked, knob, past, trial, window
from tests.unit.tuner.bo.searches import at_baseline, told
from tuner.bo.beliefs import View
from tuner.bo.encoding import MOST_ROWS, Grid
from tuner.bo.nearby import searched
from tuner.bo.scale import Scale
from tuner.bo.search import Search
from tuner.bo.suggest import suggest
from tuner.core import Condition, Done, Phase, Setting, Space, Study, Trial, Try, setting_key, weigh

VALUES = (1, 2, 3, 4)
HUGE = Space(tuple(knob(f"k{i}", VALUES, 4) for i in range(10)))
BEST = {f"k{i}": VALUES[i % 3] for i in range(10)}


def wrong(at: Setting) -> int:
    """Return the number of knobs that are not at their best value."""
    return sum(value != BEST[name] for name, value in at.items())


def free(space: Space, **changes: object) -> Study:
    return replace(asked(10, constraints=(), **changes), space=space)


def found(at: Study, trials: list[Trial]) -> Search:
    """Return a search that predicts the same sure saving for each knob at its best value."""
    evidence = weigh(at, trials)

    def look(grid: Grid) -> Search:
        costs = torch.tensor([[0.05 * wrong(s), 0.001] for s in grid.settings], dtype=torch.float64)
        model = told(grid.rows[setting_key(at.baseline)], costs[None])
        measured = {row: c for c in evidence.candidates if (row := grid.row(c.setting)) is not None}
        view = View([model], {"energy_j": Scale(10.0, True)}, {"energy_j": (0, 0)}, measured)
        return Search(past(at, trials), grid, view)

    return searched(at, [t.setting for t in trials], look)


def test_a_near_best_setting_of_a_million_is_found_in_few_trials() -> None:
    at = free(HUGE)
    assert HUGE.size > 1_000_000
    search = found(at, at_baseline(at))
    assert len(search.grid.settings) < MOST_ROWS
    assert min(wrong(s) for s in search.grid.settings) <= 1
    for one in search.grid.settings:
        HUGE.check(one)


def test_no_setting_is_listed_twice() -> None:
    at = free(HUGE)
    keys = [setting_key(s) for s in found(at, at_baseline(at)).grid.settings]
    assert len(set(keys)) == len(keys)


def test_the_baseline_measured_settings_and_their_neighbours_are_examined() -> None:
    at = free(HUGE)
    odd = {**at.baseline, "k0": 2, "k7": 1, "k9": 3}
    grid = found(at, [*at_baseline(at), trial(3, odd, window())]).grid
    for center in (at.baseline, odd):
        assert grid.row(center) is not None
        for at_hand in HUGE.knobs:
            for value in at_hand.values:
                assert grid.row({**center, at_hand.name: value}) is not None


def test_the_nearest_and_spread_values_of_a_long_ladder_are_searched() -> None:
    at = free(Space((knob("k0", tuple(range(1, 200_001)), 150_000),)))
    grid = found(at, at_baseline(at)).grid
    assert len(grid.settings) < MOST_ROWS
    assert {1, 149_999, 150_000, 150_001, 200_000} <= {s["k0"] for s in grid.settings}


def test_many_long_ladders_do_not_exceed_the_limit_of_enumeration() -> None:
    at = free(Space(tuple(knob(f"k{i}", tuple(range(96)), 95) for i in range(10))))
    spread = [{**at.baseline, f"k{n % 10}": n} for n in range(20)]
    trials = [trial(3 + n, odd, window()) for n, odd in enumerate(spread)]
    grid = found(at, [*at_baseline(at), *trials]).grid
    assert len(grid.settings) <= MOST_ROWS
    assert {94, 95, 0} <= {s["k9"] for s in grid.settings}


def test_the_seed_decides_the_examined_settings() -> None:
    def keys(seed: int) -> list[object]:
        at = free(HUGE, seed=seed)
        return [setting_key(s) for s in found(at, at_baseline(at)).grid.settings]

    assert keys(1) == keys(1)
    assert set(keys(1)) != set(keys(2))


def test_in_a_listed_space_only_listed_settings_are_examined() -> None:
    def even(at: Setting) -> bool:
        return sum(int(v) for v in at.values()) % 2 == 0

    small = Space(HUGE.knobs[:7])
    only = tuple(s for s in small.grid() if even(s))
    at = free(Space(small.knobs, only))
    grid = found(at, at_baseline(at)).grid
    assert all(even(s) for s in grid.settings)
    assert len(grid.settings) > 100


def cost(at: Setting) -> float:
    """Return a smooth cost with its minimum away from the baseline."""
    return 10.0 * math.exp(0.02 * sum((int(v) - 2) ** 2 for v in at.values()))


def played(at: Study, surface: Callable[[Setting], float], most: int) -> list[Trial]:
    trials = [
        trial(n, at.baseline, window(surface(at.baseline)), phase=Phase.BASELINE) for n in (1, 2)
    ]
    while len(trials) < most + 2 and isinstance(answer := suggest(past(at, trials)), Try):
        at.space.check(answer.setting)
        trials.append(trial(len(trials) + 1, answer.setting, window(surface(answer.setting))))
    return trials


def test_a_search_through_a_million_settings_finds_a_saving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = replace(free(HUGE), terms=asked(4).terms)
    monkeypatch.setattr("tuner.bo.physics.DRAWS", 16)
    monkeypatch.setattr("tuner.bo.nearby.STARTS", 64)
    trials = played(at, cost, 3)
    answer = suggest(past(at, trials))
    assert isinstance(answer, Try | Done)
    assert min(cost(t.setting) for t in trials) < 0.9 * cost(at.baseline)
    assert suggest(past(at, trials)) == answer


def test_a_local_search_finds_the_setting_of_the_enumeration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same space, enumerated and searched locally: both predict the same gain of their choice."""
    space = Space(
        (
            knob("gpu.clock_mhz", tuple(range(400, 1001, 50)), 1000),
            knob("batch_size", (1, 2, 4, 8), 1),
        )
    )
    at = free(space)
    trials = played(at, lambda s: 10.0 * (float(s["gpu.clock_mhz"]) / 1000.0) ** 0.5, 2)
    whole = suggest(past(at, trials))
    monkeypatch.setattr("tuner.bo.encoding.MOST_ROWS", 10)
    part = suggest(past(at, trials))
    assert isinstance(whole, Try)
    assert isinstance(part, Try)
    assert part.predicted["energy_j"].mean == pytest.approx(
        whole.predicted["energy_j"].mean, rel=0.02
    )


def test_settings_that_differ_in_ineffective_knobs_are_measured_once() -> None:
    bound = [
        replace(k, condition=Condition("k0", "==", "1")) if k.name != "k0" else k
        for k in HUGE.knobs
    ]
    at = free(Space(tuple(bound)))
    search = found(at, at_baseline(at))
    for one in search.grid.settings:
        at.space.check(one)
    # The only knob with an effect, next to the baseline, and the rows that it adds.
    assert {s["k0"] for s in search.grid.settings} == {*VALUES}
    assert min(wrong(s) for s in search.grid.settings) < 5
