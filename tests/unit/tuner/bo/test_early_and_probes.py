"""What an early trial may cost and promise, what has to wait, and which window teaches most."""

from __future__ import annotations

import pytest

from tests.builders import knob, setting
from tests.unit.tuner.bo.searches import (
    LADDER,
    NOTHING,
    UNPROMISING,
    Belief4,
    at_baseline,
    believing,
    idle,
    ladder,
    measured,
)
from tuner.bo.explore import explore, worth
from tuner.bo.search import Search
from tuner.core import Cost, Safety, Space, Trial, Try

GOOD: Belief4 = (-0.1, 0.01, 0.0, 0.01)


def after(
    *worlds: dict[int, Belief4],
    spent: int,
    safety: Safety = Safety.BALANCED,
    trials: tuple[Trial, ...] = (),
) -> Search:
    """Return a search told what to believe after some trials and so many that showed nothing new."""
    at = ladder(safety=safety)
    past = [*at_baseline(at), *trials, *(idle(at, spent) if spent else ())]
    return believing(at, past, *({1000: NOTHING, **world} for world in worlds), rest=UNPROMISING)


def suggested(search: Search) -> Try:
    """Return what is measured next; there is something."""
    answer = explore(search)
    assert answer is not None
    return answer


@pytest.mark.parametrize(("promise", "tried"), [(-0.12, 800), (-0.4, 700)])
def test_a_trial_ten_times_as_long_has_to_promise_more_but_not_ten_times_as_much(
    promise: float, tried: int
) -> None:
    """700 MHz comes with a batch of 2 only, and to change that takes nine windows."""
    slow = knob("batch_size", (1, 2), 1, cost=Cost(90.0))
    only = setting(1000), setting(800), setting(700, 2)
    at = ladder(space=Space((LADDER.knob("gpu.clock_mhz"), slow), only))
    world = {1000: NOTHING, 800: GOOD, 700: (promise, *GOOD[1:])}
    answer = suggested(believing(at, [*at_baseline(at), *idle(at)], world))
    assert answer.setting["gpu.clock_mhz"] == tried


def test_the_same_risk_is_worth_less_while_little_is_known() -> None:
    world = {600: (-0.2, 0.01, 0.13, 0.05), 800: GOOD}
    early, late = (worth(after(world, spent=spent)) for spent in (0, 12))
    assert float(early[1]) < float(late[1])
    assert float(early[3]) == pytest.approx(float(late[3])), "no risk, no price"


def test_a_first_look_around_is_taken_for_next_to_nothing_and_a_later_one_is_not() -> None:
    """Three deviations above the baseline's energy, and nothing else is left to do."""
    world = {800: (0.03, 0.01, 0.0, 0.01)}
    moved = (measured(3, 600, 11.0),)
    assert suggested(after(world, spent=1, trials=moved)).setting == setting(800)
    assert explore(after(world, spent=8, trials=moved)) is None


def test_what_is_hardly_likely_to_keep_a_limit_has_to_wait_until_the_end() -> None:
    """Six in ten, for six times the saving."""
    world = {600: (-0.6, 0.01, 0.17, 0.05), 800: GOOD}
    assert suggested(after(world, spent=12, safety=Safety.OFF)).setting == setting(600)
    assert suggested(after(world, spent=12)).setting == setting(800)
    tried = (measured(3, 800, 9.0),)
    dare = suggested(after(world, spent=12, trials=tried))
    assert dare.setting == setting(600)
    assert dare.why.endswith("a risk worth taking")


SLOW = {500: (-0.08, 0.002, 0.6, 0.02), 900: (0.01, 0.001, 0.10, 0.005)}
FAST = {500: (-0.08, 0.002, 0.1, 0.02), 900: (0.01, 0.001, 0.02, 0.005)}
"""In one world slowing down costs much time, in the other little, and 900 MHz tells which."""


def test_a_setting_that_has_two_windows_gets_no_third_for_what_it_would_teach() -> None:
    """800 MHz tells less, as its energy is three times the baseline's, but nobody has tried it."""
    slow = {**SLOW, 800: (1.1, 0.001, 0.11, 0.005)}
    fast = {**FAST, 800: (1.1, 0.001, 0.02, 0.005)}
    windows = tuple(measured(n, 900, 10.1, 106.0) for n in (3, 4))
    once, twice = (after(slow, fast, spent=12, trials=windows[:n]) for n in (1, 2))
    assert suggested(once).setting == setting(900)
    assert suggested(twice).setting == setting(800)


def test_a_safety_probe_names_the_promising_setting_where_it_measures_another() -> None:
    """Under `strict` 500 MHz is too long a stride to be made for its gain, safe as it is."""
    here = ({500: (-0.08, 0.002, latency, 0.005)} for latency in (0.10, 0.15))
    itself = suggested(after(*here, spent=12, safety=Safety.STRICT))
    assert itself.setting == setting(500)
    assert "safety probe: energy_j should be" in itself.why
    beside = suggested(after(SLOW, FAST, spent=12))
    assert beside.setting == setting(900)
    assert "safety probe for gpu.clock_mhz=" in beside.why
