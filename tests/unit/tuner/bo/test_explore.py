"""One decision at a time: what is measured next where one thing or another is believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import knob, setting, trial, window
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
from tuner.bo.acquisition import Edge
from tuner.bo.explore import explore, worth
from tuner.bo.search import Search
from tuner.core import Cost, Safety, Space, Trial, TrialState

EVERYONE = tuple(Safety)
GREAT: Belief4 = (-0.4, 0.01, 0.0, 0.01)
GOOD: Belief4 = (-0.1, 0.01, 0.0, 0.01)
TINY: Belief4 = (-0.001, 0.0002, 0.0, 0.001)
LIKELY: Belief4 = (-0.2, 0.01, 0.13, 0.05)
"""It keeps the limit with a chance of five in six."""
EVEN: Belief4 = (-0.2, 0.01, 0.185, 0.05)


def after(
    *worlds: dict[int, Belief4],
    safety: Safety = Safety.BALANCED,
    rest: Belief4 = UNPROMISING,
    trials: tuple[Trial, ...] = (),
    late: bool = True,
) -> Search:
    """Return a search told what to believe; `late` where the look around is over."""
    at = ladder(safety=safety)
    past = [*at_baseline(at), *trials, *(idle(at) if late else ())]
    return believing(at, past, *({1000: NOTHING, **w} for w in worlds), rest=rest)


def chosen(search: Search) -> object:
    """Return the clock that is measured next, None where nothing is."""
    answer = explore(search)
    return None if answer is None else answer.setting["gpu.clock_mhz"]


@pytest.mark.parametrize("safety", EVERYONE)
def test_what_surely_saves_most_is_measured(safety: Safety) -> None:
    assert chosen(after({700: GREAT, 800: GOOD}, safety=safety)) == 700


@pytest.mark.parametrize("safety", EVERYONE)
def test_what_surely_breaks_the_limit_is_not_measured_however_much_it_saves(
    safety: Safety,
) -> None:
    assert chosen(after({500: (-2.0, 0.01, 0.5, 0.01), 800: GOOD}, safety=safety)) == 800


@pytest.mark.parametrize("safety", EVERYONE)
def test_where_nothing_is_to_be_gained_the_search_ends(safety: Safety) -> None:
    assert chosen(after({}, safety=safety)) is None
    moved = (measured(3, 600, 13.0),)
    assert chosen(after({}, rest=(0.3, 0.01, 0.0, 0.01), safety=safety, trials=moved)) is None


def test_an_early_model_is_not_trusted_that_nothing_is_to_be_gained() -> None:
    rest = (0.0, 0.001, 0.0, 0.05)
    moved = (measured(3, 600, 11.0),)
    assert chosen(after({}, rest=rest, late=True, trials=moved)) is None
    assert chosen(after({}, rest=rest, late=False, trials=moved)) is not None


def test_a_look_around_asks_less_of_the_first_move_of_a_knob() -> None:
    """It keeps the limit with a chance of seven in ten; else the baseline is measured once more."""
    world = {600: (-0.2, 0.01, 0.156, 0.05)}
    assert chosen(after(world, safety=Safety.STRICT, late=False)) == 600
    moved = (measured(3, 800, 11.0),)
    assert chosen(after(world, safety=Safety.STRICT, late=False, trials=moved)) == 1000


@pytest.mark.parametrize(
    ("safety", "spent", "found_j", "looked_at"),
    [
        (Safety.BALANCED, 9, 11.0, True),
        (Safety.BALANCED, 12, 11.0, False),
        (Safety.BALANCED, 9, 9.9, False),
        (Safety.STRICT, 9, 11.0, False),
    ],
)
def test_while_nothing_beats_the_baseline_a_search_looks_around_for_longer(
    safety: Safety, spent: int, found_j: float, looked_at: bool
) -> None:
    """Not worth its risk, and as likely as not to keep the limit: 600."""
    at = ladder(safety=safety)
    better: Belief4 = (-0.01, 0.0005, 0.0, 0.001)
    world = {600: (-0.005, 0.01, 0.18, 0.03), **({800: better} if found_j < 10.0 else {})}
    trials = [*at_baseline(at), measured(3, 800, found_j, 100.0), *idle(at, spent - 1)]
    search = believing(at, trials, {1000: NOTHING, **world})
    assert (chosen(search) == 600) is looked_at


def test_a_look_around_asks_no_price_of_what_is_sure_enough() -> None:
    """Either is too little to be worth a trial; 700 is more, with a chance of one in twelve to break."""
    world = {700: (-0.004, 0.0002, 0.154, 0.02), 800: (-0.0015, 0.0002, 0.0, 0.001)}
    assert chosen(after(world, safety=Safety.BALANCED, late=False)) == 700
    assert chosen(after(world, safety=Safety.STRICT, late=False)) == 800


@pytest.mark.parametrize("safety", EVERYONE)
def test_of_two_alike_the_safer_is_measured(safety: Safety) -> None:
    safer = -0.2, 0.01, 0.0, 0.05
    assert chosen(after({600: LIKELY, 800: safer}, safety=safety)) == 800


def test_only_a_bold_search_risks_what_is_no_more_than_likely() -> None:
    assert chosen(after({600: LIKELY}, safety=Safety.OFF)) == 600
    assert chosen(after({600: LIKELY}, safety=Safety.BALANCED)) == 600
    moved = (measured(3, 800, 11.0),)
    assert chosen(after({600: LIKELY}, safety=Safety.STRICT, trials=moved)) is None


def test_a_bold_search_cares_for_the_saving_and_a_shy_one_for_the_risk() -> None:
    world = {600: EVEN, 800: (-0.05, 0.01, 0.0, 0.01)}
    assert chosen(after(world, safety=Safety.OFF)) == 600
    assert chosen(after(world, safety=Safety.STRICT)) == 800


@pytest.mark.parametrize(("saves", "dared"), [(0.075, 600), (0.0625, None)])
def test_a_risk_is_taken_in_the_end_where_it_is_worth_a_trial_net_of_its_price(
    saves: float, dared: int | None
) -> None:
    """At a chance of .4 the price is some .025: of the first .005 is left, of the second nothing."""
    moved = (measured(3, 800, 11.0),)
    assert chosen(after({600: (-saves, 0.001, 0.1836, 0.005)}, trials=moved)) == dared


def test_breaking_a_limit_by_far_is_worse_than_by_little() -> None:
    near, far = (-0.2, 0.01, 0.0, 0.1), (-0.2, 0.01, -1.5, 1.0)
    both = after({600: near, 700: far})
    chance = both.chance.tolist()
    assert abs(chance[1] - chance[2]) < 0.02
    assert chosen(both) == 600


def test_going_far_beyond_an_ample_limit_is_dearer() -> None:
    """The same row at the same distance from either limit."""

    def worth_within(room: float, safety: Safety) -> float:
        found = after({600: (-0.2, 0.01, room - 0.2, 0.3)}, safety=safety)
        belief = replace(found.view.belief, edges=(Edge(1, 1.0, room, 0.0),))
        return float(worth(replace(found, view=replace(found.view, belief=belief)))[1])

    assert worth_within(0.3, Safety.BALANCED) < worth_within(0.1, Safety.BALANCED) - 0.005
    assert worth_within(0.3, Safety.OFF) == pytest.approx(worth_within(0.1, Safety.OFF))


def test_a_shy_search_goes_towards_a_limit_in_strides() -> None:
    """Both are as good as certain to keep the limit, but one uses up nearly all the slack."""
    edge, half = (-0.5, 0.01, 0.16, 0.004), (-0.1, 0.01, 0.05, 0.004)
    world = {500: edge, 800: half}
    assert chosen(after(world, safety=Safety.BALANCED)) == 500
    assert chosen(after(world, safety=Safety.STRICT)) == 800
    nearer = {**world, 800: (-0.1, 0.001, 0.14, 0.001)}
    went = after(nearer, safety=Safety.STRICT, trials=(measured(3, 800, 9.0, 115.0),))
    assert chosen(went) == 500


@pytest.mark.parametrize("safety", EVERYONE)
def test_while_nothing_keeps_the_limits_the_likeliest_is_measured(safety: Safety) -> None:
    at = ladder(safety=safety)
    broken = -0.4, 0.01, 0.3, 0.001
    worlds = {1000: UNPROMISING, 600: broken, 900: (0.2, 0.01, 0.25, 0.1)}
    search = believing(at, [*at_baseline(at), *idle(at)], worlds)
    answer = explore(search)
    assert answer is not None
    assert answer.setting == setting(900)
    assert "no setting keeps every limit yet" in answer.why


def test_with_everything_measured_and_nothing_kept_the_search_ends() -> None:
    at = ladder()
    measurements = [measured(n, 400 + 100 * n, 9.0, 119.0) for n in range(1, 6)]
    search = believing(at, [*at_baseline(at), *measurements], {})
    assert explore(search) is None


def test_what_may_not_be_tried_is_passed_over_for_the_next_best() -> None:
    world = {600: GREAT, 800: GOOD}
    running = trial(3, setting(600), state=TrialState.RUNNING)
    assert chosen(after(world, trials=(running,))) == 800
    broken = measured(3, 600, 5.0, 200.0)
    assert chosen(after(world, trials=(broken,))) == 800


def test_what_failed_once_is_tried_again_only_after_its_like() -> None:
    failed = trial(3, setting(600), state=TrialState.FAILED)
    world = {600: GREAT, 800: (-0.35, 0.01, 0.0, 0.01)}
    assert chosen(after(world)) == 600
    assert chosen(after(world, trials=(failed,))) == 800
    assert chosen(after({600: GREAT}, trials=(failed,), safety=Safety.OFF)) == 600
    twice = failed, trial(4, setting(600), state=TrialState.FAILED)
    assert chosen(after({600: GREAT}, trials=twice, safety=Safety.OFF)) is None


def test_what_is_promising_but_not_trusted_yet_is_measured_again() -> None:
    doubted = measured(3, 600, 6.0, 118.0)
    search = after({600: (-0.4, 0.01, 0.16, 0.05)}, trials=(doubted,))
    answer = explore(search)
    assert answer is not None
    assert answer.setting == setting(600)
    assert "measured again" in answer.why


def test_before_the_end_the_best_setting_is_made_firm() -> None:
    world = {600: (-0.4, 0.01, 0.14, 0.04)}
    once = measured(3, 600, 6.0, 115.0)
    search = after(world, trials=(once,))
    assert search.deployable[0] == 1
    assert chosen(search) == 600
    often = tuple(measured(n, 600, 6.0, 115.0) for n in range(3, 8))
    assert chosen(after(world, trials=often)) is None
    firm = {600: (-0.4, 0.01, 0.0, 0.01)}
    assert chosen(after(firm, trials=(once,))) is None


def test_small_gains_are_collected_where_they_are_safe() -> None:
    assert chosen(after({900: TINY})) == 900
    moved = (measured(3, 600, 11.0),)
    assert chosen(after({900: (-0.001, 0.0002, 0.12, 0.05)}, trials=moved)) is None


def test_a_safe_window_tells_whether_a_promising_setting_keeps_its_limits() -> None:
    """In one world slowing down costs much time, in the other little: 900 tells which."""
    slow = {500: (-0.08, 0.002, 0.6, 0.02), 900: (0.01, 0.001, 0.10, 0.005)}
    fast = {500: (-0.08, 0.002, 0.1, 0.02), 900: (0.01, 0.001, 0.02, 0.005)}
    search = after(slow, fast)
    answer = explore(search)
    assert answer is not None
    assert answer.setting == setting(900)
    assert "safety probe" in answer.why
    assert explore(after(slow, trials=(measured(3, 600, 11.0),))) is None


def test_of_two_lessons_the_one_that_teaches_more_for_what_it_costs_is_taken() -> None:
    """At 800 the worlds lie further apart than at 900, but a window takes three times the energy."""
    slow = {500: (-0.08, 0.002, 0.6, 0.02), 900: (0.01, 0.001, 0.10, 0.005)}
    fast = {500: (-0.08, 0.002, 0.1, 0.02), 900: (0.01, 0.001, 0.02, 0.005)}
    for energy, taken in ((0.01, 800), (1.1, 900)):
        beside = {800: (energy, 0.001, 0.11, 0.005)}, {800: (energy, 0.001, 0.02, 0.005)}
        assert chosen(after({**slow, **beside[0]}, {**fast, **beside[1]})) == taken


@pytest.mark.parametrize(("energy", "looked_at"), [(0.02, True), (0.5, False)])
def test_nothing_is_looked_at_that_surely_costs_more(energy: float, looked_at: bool) -> None:
    dear = energy, 0.05, 0.0, 0.01
    answer = explore(after({800: dear}, trials=(measured(3, 600, 11.0),), late=False))
    assert answer is not None
    assert (answer.setting == setting(800)) == looked_at


def test_no_search_ends_before_each_knob_was_moved_where_that_is_safe() -> None:
    """What is believed of a knob that nothing has moved is the prior's word alone."""
    dull = 0.2, 0.01, 0.0, 0.01
    answer = explore(after({700: (0.3, 0.1, 0.0, 0.01)}, rest=dull))
    assert answer is not None
    assert answer.setting == setting(700), "it could be the best"
    assert "no window has changed" in answer.why
    assert explore(after({}, rest=dull, trials=(measured(3, 600, 11.0),))) is None


def test_where_no_new_knob_is_safe_to_move_the_likeliest_is_moved() -> None:
    wild = 0.2, 0.01, -0.5, 0.6
    assert chosen(after({600: wild, 700: (0.2, 0.01, 0.13, 0.05)})) == 600
    assert chosen(after({600: (0.2, 0.01, 0.26, 0.05)})) == 600, "a chance of .06"
    assert chosen(after({600: (0.2, 0.01, 0.27, 0.05)})) is None, "the guard would refuse it"


def test_of_several_new_knobs_one_is_moved_first() -> None:
    """Both at once is likelier to keep the limit, but would not tell which one it was."""
    knobs = knob("gpu.clock_mhz", (800, 900, 1000), 1000), knob("batch_size", (1, 2), 1)
    at = ladder(space=Space(knobs, (setting(1000, 1), setting(900, 1), setting(800, 2))))
    one, both = (0.2, 0.01, 0.24, 0.05), (0.2, 0.01, 0.2, 0.05)
    worlds = {1000: NOTHING, 900: one, 800: both}
    assert chosen(believing(at, [*at_baseline(at), *idle(at)], worlds)) == 900


def test_knobs_that_cannot_be_moved_alone_are_moved_together() -> None:
    knobs = knob("gpu.clock_mhz", (800, 1000), 1000), knob("batch_size", (1, 2), 1)
    at = ladder(space=Space(knobs, (setting(1000, 1), setting(800, 2))))
    search = believing(
        at, [*at_baseline(at), *idle(at)], {1000: NOTHING, 800: (0.2, 0.01, 0.0, 0.01)}
    )
    answer = explore(search)
    assert answer is not None
    assert answer.setting == setting(800, 2)


def test_a_knob_that_only_forbidden_combinations_would_move_alone_is_moved_with_one_already_moved() -> (
    None
):
    """Half the threads may go without their siblings; 900 is measured, and 800 goes with them only."""
    knobs = knob("gpu.clock_mhz", (800, 900, 1000), 1000), knob("batch_size", (1, 2), 1)
    only = (setting(1000, 1), setting(900, 1), setting(800, 2))
    at = ladder(space=Space(knobs, only))
    dull = 0.2, 0.01, 0.0, 0.01
    trials = [*at_baseline(at), *idle(at), measured(3, 900, 11.0)]
    answer = explore(believing(at, trials, {1000: NOTHING, 900: dull, 800: dull}))
    assert answer is not None
    assert answer.setting == setting(800, 2)
    assert "no window has changed" in answer.why


def test_a_knob_that_was_moved_only_together_with_another_is_moved_alone() -> None:
    knobs = knob("gpu.clock_mhz", (600, 800, 1000), 1000), knob("batch_size", (1, 2), 1)
    at = ladder(space=Space(knobs))
    dull = 0.2, 0.01, 0.0, 0.01
    both = [*at_baseline(at), *idle(at), trial(3, setting(800, 2), window(11.0, 105.0))]
    believed = {1000: NOTHING, 800: dull, 600: dull}
    answer = explore(believing(at, both, believed))
    assert answer is not None
    assert answer.setting == setting(1000, 2), "it could be the best of those that move one knob"
    assert "together with others" in answer.why
    alone = trial(4, setting(1000, 2), window(10.0, 100.0))
    assert explore(believing(at, [*both, alone], believed)) is None, "so the clock is apart, too"


def test_a_knob_that_was_moved_only_together_is_moved_alone_even_if_that_is_not_safe() -> None:
    knobs = knob("gpu.clock_mhz", (800, 1000), 1000), knob("batch_size", (1, 2), 1)
    at = ladder(space=Space(knobs))
    both = [*at_baseline(at), *idle(at), trial(3, setting(800, 2), window(11.0, 105.0))]
    unsafe = 0.2, 0.01, 0.16, 0.05
    answer = explore(believing(at, both, {1000: unsafe, 800: unsafe}))
    assert answer is not None
    assert "together with others" in answer.why


def test_before_it_gives_up_a_search_makes_sure_of_the_baseline() -> None:
    at = ladder(safety=Safety.STRICT)
    lost = idle(at)[1:]
    doubtful = {1000: NOTHING, 800: EVEN}
    answer = explore(believing(at, [*at_baseline(at), *lost], doubtful))
    assert answer is not None
    assert answer.setting == at.baseline
    assert explore(believing(at, [*at_baseline(at), *idle(at)], doubtful)) is None
    moved = measured(3, 600, 13.0)
    free = believing(at, [*at_baseline(at), moved, *lost], {1000: NOTHING}, limited=False)
    assert explore(free) is None, "nothing rests on it where nothing has a limit"


def test_a_metric_that_nothing_is_known_of_is_no_place_to_go() -> None:
    wild = -0.4, 0.01, -1.0, 1.0
    assert chosen(after({500: wild, 800: GOOD})) == 800


def test_a_knob_nobody_needs_to_wait_for_is_turned_first() -> None:
    """The same promise, but one takes a quarter of an hour to come into force."""
    slow = knob("batch_size", (1, 2), 1, cost=Cost(900.0))
    at = ladder(space=Space((LADDER.knob("gpu.clock_mhz"), slow)))
    search = believing(at, [*at_baseline(at), *idle(at)], {1000: NOTHING, 700: GREAT})
    answer = explore(search)
    assert answer is not None
    assert answer.setting == setting(700, 1)


def test_equals_are_drawn_by_the_seed() -> None:
    def picked(seed: int) -> object:
        at = ladder(seed=seed)
        return chosen(believing(at, [*at_baseline(at), *idle(at)], {1000: NOTHING}, rest=GREAT))

    assert len({picked(seed) for seed in range(8)}) > 1
    assert picked(3) == picked(3)


def test_without_limits_only_the_saving_counts() -> None:
    at = ladder(constraints=(), safety=Safety.STRICT)
    world = {1000: NOTHING, 500: (-0.5, 0.01, 3.0, 2.0), 800: GOOD}
    search = believing(at, [*at_baseline(at), *idle(at)], world, limited=False)
    assert chosen(search) == 500


def test_what_is_worth_most_is_what_is_chosen() -> None:
    search = after({600: GREAT, 700: GOOD, 800: LIKELY})
    net = worth(search)
    assert int(net.argmax()) == 1
    assert float(net[2]) > 0.0
    assert float(net[0]) == float("-inf")
