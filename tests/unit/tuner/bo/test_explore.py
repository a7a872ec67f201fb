"""One decision at a time: the next setting to measure under given predictions."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import NormalDist

import pytest
import torch

from policies.polythrottle.policy import Polythrottle
from tests.builders import knob, setting, trial
from tests.unit.tuner.bo.searches import (
    CLOCKS,
    LADDER,
    LIMIT,
    NOTHING,
    UNPROMISING,
    Belief4,
    at_baseline,
    believing,
    idle,
    ladder,
    measured,
    seen,
)
from tuner.bo.caution import CAUTION, even_chance, last_chance
from tuner.bo.explore import (
    FIRST,
    FLAT,
    LEAST_GAIN,
    RULES,
    Rules,
    explore,
    worth,
)
from tuner.bo.search import MOST_WINDOWS, Search
from tuner.core import Cost, Objective, Safety, Space, Trial, TrialState

EVERYONE = tuple(Safety)
TWO = Space((knob("gpu.clock_mhz", CLOCKS, 1000), knob("batch_size", (1, 2), 1)))
GREAT: Belief4 = (-0.4, 0.01, 0.0, 0.01)
GOOD: Belief4 = (-0.1, 0.01, 0.0, 0.01)
TINY: Belief4 = (-0.001, 0.0002, 0.0, 0.001)
LIKELY: Belief4 = (-0.2, 0.01, 0.13, 0.05)
"""A setting that keeps the limit with a chance of 5/6."""
EVEN: Belief4 = (-0.2, 0.01, 0.185, 0.05)


def after(
    *worlds: dict[int, Belief4],
    safety: Safety = Safety.BALANCED,
    rest: Belief4 = UNPROMISING,
    trials: tuple[Trial, ...] = (),
    late: bool = True,
    space: Space = LADDER,
) -> Search:
    """Return a search with given predictions; `late` if its initial exploration is over."""
    at = ladder(safety=safety, space=space)
    past = [*at_baseline(at), *trials, *(idle(at) if late else ())]
    return believing(at, past, *({1000: NOTHING, **w} for w in worlds), rest=rest)


def chosen(search: Search) -> object:
    """Return the next clock to measure, None if there is none."""
    answer = explore(search)
    return None if answer is None else answer.setting["gpu.clock_mhz"]


@pytest.mark.parametrize("safety", EVERYONE)
def test_the_setting_with_the_surest_saving_is_measured(safety: Safety) -> None:
    assert chosen(after({700: GREAT, 800: GOOD}, safety=safety)) == 700


@pytest.mark.parametrize("safety", EVERYONE)
def test_a_surely_infeasible_setting_is_not_measured_despite_its_saving(safety: Safety) -> None:
    assert chosen(after({500: (-2.0, 0.01, 0.5, 0.01), 800: GOOD}, safety=safety)) == 800


@pytest.mark.parametrize("safety", EVERYONE)
def test_without_a_possible_gain_the_search_ends(safety: Safety) -> None:
    assert chosen(after({}, safety=safety)) is None
    moved = (measured(3, 600, 13.0),)
    assert chosen(after({}, rest=(0.3, 0.01, 0.0, 0.01), safety=safety, trials=moved)) is None


def test_an_early_model_is_not_trusted_that_nothing_is_to_be_gained() -> None:
    rest = (0.0, 0.001, 0.0, 0.05)
    moved = (measured(3, 600, 11.0),)
    looks = RULES["look-around"]
    assert looks(Rules(after({}, rest=rest, late=True, trials=moved))) is None
    assert looks(Rules(after({}, rest=rest, late=False, trials=moved))) is not None


@pytest.mark.parametrize("safety", EVERYONE)
def test_the_safer_of_two_similar_settings_is_measured(safety: Safety) -> None:
    safer = -0.2, 0.01, 0.0, 0.05
    assert chosen(after({600: LIKELY, 800: safer}, safety=safety)) == 800


def test_a_bold_search_weighs_the_saving_and_a_shy_one_the_risk() -> None:
    world = {600: EVEN, 800: (-0.05, 0.01, 0.0, 0.01)}
    assert chosen(after(world, safety=Safety.OFF)) == 600
    assert chosen(after(world, safety=Safety.STRICT)) == 800


def test_breaking_a_limit_by_far_is_worse_than_by_little() -> None:
    near, far = (-0.2, 0.01, 0.0, 0.1), (-0.2, 0.01, -1.5, 1.0)
    both = after({600: near, 700: far})
    chance = both.chance.tolist()
    assert abs(chance[1] - chance[2]) < 0.02
    assert chosen(both) == 600


@pytest.mark.parametrize("safety", EVERYONE)
def test_while_nothing_keeps_the_limits_the_likeliest_is_measured(safety: Safety) -> None:
    at = ladder(safety=safety)
    broken = -0.4, 0.01, 0.3, 0.001
    worlds = {1000: UNPROMISING, 600: broken, 900: (0.2, 0.01, 0.25, 0.1)}
    search = believing(at, [*at_baseline(at), *idle(at)], worlds)
    answer = explore(search)
    assert answer is not None
    assert answer.setting == setting(900)
    assert "no setting meets every limit yet" in answer.why


def test_with_everything_measured_and_nothing_kept_the_search_ends() -> None:
    at = ladder()
    measurements = [measured(n, 400 + 100 * n, 9.0, 119.0) for n in range(1, 6)]
    search = believing(at, [*at_baseline(at), *measurements], {})
    assert explore(search) is None


def test_a_forbidden_setting_is_skipped_for_the_next_best() -> None:
    world = {600: GREAT, 800: GOOD}
    running = trial(3, setting(600), state=TrialState.RUNNING)
    assert chosen(after(world, trials=(running,))) == 800
    broken = measured(3, 600, 5.0, 200.0)
    assert chosen(after(world, trials=(broken,))) == 800


def test_a_failed_point_is_retried_after_the_others() -> None:
    failed = trial(3, setting(600), state=TrialState.FAILED)
    world = {600: GREAT, 800: (-0.35, 0.01, 0.0, 0.01)}
    assert chosen(after(world)) == 600
    assert chosen(after(world, trials=(failed,))) == 800
    assert chosen(after({600: GREAT}, trials=(failed,), safety=Safety.OFF)) == 600
    twice = failed, trial(4, setting(600), state=TrialState.FAILED)
    assert chosen(after({600: GREAT}, trials=twice, safety=Safety.OFF)) is None


def test_a_promising_uncertain_setting_is_measured_again() -> None:
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


@pytest.mark.parametrize(("energy", "looked_at"), [(0.02, True), (0.5, False)])
def test_a_setting_that_surely_costs_more_is_not_explored(energy: float, looked_at: bool) -> None:
    dear = energy, 0.05, 0.0, 0.01
    search = after({800: dear}, trials=(measured(3, 600, 11.0),), late=False)
    assert (chosen(search) == 800) == looked_at


def test_only_one_of_several_new_knobs_is_moved_first() -> None:
    """To move both is likelier to keep the limit, but would not show which knob had the effect."""
    knobs = knob("gpu.clock_mhz", (800, 900, 1000), 1000), knob("batch_size", (1, 2), 1)
    at = ladder(space=Space(knobs, (setting(1000, 1), setting(900, 1), setting(800, 2))))
    one, both = (0.2, 0.01, 0.21, 0.05), (0.2, 0.01, 0.19, 0.05)
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
    """Half the threads are allowed without their siblings; 900 is measured, and 800 needs the siblings."""
    knobs = knob("gpu.clock_mhz", (800, 900, 1000), 1000), knob("batch_size", (1, 2), 1)
    only = (setting(1000, 1), setting(900, 1), setting(800, 2))
    at = ladder(space=Space(knobs, only))
    dull = 0.2, 0.01, 0.0, 0.01
    trials = [*at_baseline(at), *idle(at), measured(3, 900, 11.0)]
    answer = explore(believing(at, trials, {1000: NOTHING, 900: dull, 800: dull}))
    assert answer is not None
    assert answer.setting == setting(800, 2)
    assert "was not changed yet" in answer.why


def test_a_knob_that_changes_fast_is_changed_first() -> None:
    """Both promise the same gain, but one takes a quarter of an hour to change."""
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


def test_the_most_valuable_row_is_chosen() -> None:
    search = after({600: GREAT, 700: GOOD, 800: LIKELY})
    net = worth(search)
    assert int(net.argmax()) == 1
    assert float(net[2]) > 0.0 > float(net[0])


def chance_of(kept: float) -> float:
    """Return the latency (log) that keeps the limit with this chance, at a deviation of 0.05."""
    return LIMIT - 0.05 * NormalDist().inv_cdf(kept)


@pytest.mark.parametrize("safety", EVERYONE)
@pytest.mark.parametrize(("space", "share"), [(LADDER, 0.25), (TWO, 1.0)], ids=["line", "plane"])
@pytest.mark.parametrize("likely", [0.02, 0.04])
def test_a_search_tries_settings_with_sufficient_odds_only(
    safety: Safety, space: Space, share: float, likely: float
) -> None:
    """Just above and below the odds at which the gain outweighs a violation; along one knob a quarter."""
    bar = even_chance(share * CAUTION[safety].violation)
    chances = bar + likely, max(0.001, bar - likely)
    above, below = ((-0.9, 0.001, chance_of(chance), 0.05) for chance in chances)
    moved = (measured(3, 800, 11.0),)

    def answer(world: Belief4) -> object:
        at = after({600: world}, safety=safety, trials=moved, space=space)
        return RULES["worthwhile"](Rules(at))

    assert answer(above) is not None
    assert answer(below) is None


KNOBS = ("gpu.clock_mhz", "power_limit_w", "batch_size", "max_num_seqs", "threads", "x1")


@pytest.mark.parametrize("number", range(8))
def test_the_first_trial_is_of_nothing_that_is_believed_dearer_than_need_be(number: int) -> None:
    """Over random spaces: it is next to the baseline, or the cheapest that may keep the limits."""
    random = Random(number)
    ladders = {name: sorted(random.sample(range(2, 400), 5)) for name in random.sample(KNOBS, 2)}
    space = Space(tuple(knob(n, tuple(v), random.choice(v)) for n, v in ladders.items()))
    search = seen(at := ladder(space=space), at_baseline(at))
    likely = search.chance >= last_chance(search.caution)
    likely[search.baseline] = False
    answer, cost = explore(search), search.view.cost
    assert answer is not None
    row = search.grid.row(answer.setting)
    assert row is not None
    assert float(cost[row]) <= max(0.0, float(cost[likely].min())) + LEAST_GAIN


def test_a_search_looks_around_at_first() -> None:
    """The saving at 600 is too small for its risk."""

    def looks(spent: int) -> bool:
        world: dict[int, Belief4] = {
            600: (-0.005, 0.01, 0.15, 0.03),
            800: (-0.01, 0.0005, 0.0, 0.001),
        }
        at = ladder()
        trials = [*at_baseline(at), measured(3, 800, 9.9, 100.0), *idle(at, spent - 1)]
        answer = RULES["look-around"](Rules(believing(at, trials, {1000: NOTHING, **world})))
        return answer is not None and answer.setting == setting(600)

    assert looks(spent=FIRST - 2)
    assert not looks(spent=FIRST)


@pytest.mark.parametrize(
    ("shown", "ends"),
    [
        ((0.1, 0.01, 0.0, 0.01), True),  # nothing beats the baseline
        ((-0.01, 0.01, 0.0, 0.01), True),  # 800 may beat it, with a chance of 84 %
        ((-0.03, 0.01, 0.0, 0.01), False),
    ],
)
def test_a_search_whose_first_windows_find_nothing_ends(shown: Belief4, ends: bool) -> None:
    world = {800: shown, 500: GREAT}
    few = tuple(measured(3 + n, 800, 9.9, 100.0) for n in range(FIRST - 1))
    assert chosen(after(world, trials=few)) == 500
    many = (*few, measured(20, 900, 10.5, 100.0))
    search = after({**world, 900: (0.1, 0.01, 0.0, 0.01)}, trials=many)
    assert (explore(search) is None) is ends
    assert explore(search, without={FLAT}) is not None
    strict = after({**world, 900: (0.1, 0.01, 0.0, 0.01)}, trials=many, safety=Safety.STRICT)
    assert explore(strict) is not None


@pytest.mark.parametrize(("space", "ends"), [(LADDER, True), (TWO, False)])
def test_no_search_ends_early_if_a_knob_was_never_changed(space: Space, ends: bool) -> None:
    dear: Belief4 = (0.1, 0.01, 0.0, 0.01)
    trials = tuple(measured(3 + n, 800, 10.5, 100.0) for n in range(FIRST))
    search = after({800: dear}, rest=(0.05, 0.01, 0.0, 0.01), trials=trials, space=space)
    assert Rules(search).flat() is ends


def test_no_search_for_a_metric_without_a_law_ends_early() -> None:
    trials = tuple(measured(3 + n, 800, 10.5, 100.0) for n in range(FIRST))
    rest: Belief4 = (0.05, 0.01, 0.0, 0.01)
    search = after({800: (0.1, 0.01, 0.0, 0.01)}, rest=rest, trials=trials, space=LADDER)
    assert Rules(search).flat()
    past = replace(search.past, study=replace(search.study, objective=Objective("score")))
    assert not Rules(replace(search, past=past)).flat()


def test_at_first_sure_settings_rank_by_their_possible_saving() -> None:
    """Neither is worth a trial; 700 is worth more, with a chance of 1/50 of breaking the limit."""
    world = {700: (-0.004, 0.0002, 0.14, 0.02), 800: (-0.0015, 0.0002, 0.0, 0.001)}
    assert chosen(after(world, late=False)) == 700


def test_a_violations_price_is_a_share_of_the_studys_possible_saving() -> None:
    """The same gain and risk, with and without a likelier setting that saves more."""
    doubtful: Belief4 = (-0.05, 0.01, 0.13, 0.05)
    alone, beside = (worth(after({600: doubtful, **more})) for more in ({}, {700: LIKELY}))
    assert float(alone[1]) > float(beside[1])


def test_where_the_second_may_be_better_one_is_measured_again_and_a_clear_best_is_not() -> None:
    once = measured(3, 600, 8.0), measured(4, 700, 8.1)
    near = after({600: (-0.2, 0.03, 0.0, 0.001), 700: (-0.19, 0.03, 0.0, 0.001)}, trials=once)
    clear = after({600: (-0.2, 0.001, 0.0, 0.001), 700: (-0.1, 0.001, 0.0, 0.001)}, trials=once)
    assert RULES["informative"](Rules(near)) is not None
    assert RULES["informative"](Rules(clear)) is None


def test_before_any_knob_was_moved_the_likeliest_setting_is_tried_at_any_promise() -> None:
    """The prediction for a knob that was never moved comes from the prior alone."""
    dull, duller = (0.2, 0.01, chance_of(0.5), 0.05), (0.2, 0.01, chance_of(0.3), 0.05)
    answer = explore(after({600: duller, 700: dull}))
    assert answer is not None
    assert answer.setting == setting(700)
    assert "was not changed yet" in answer.why
    assert chosen(after({700: dull}, trials=(measured(3, 600, 11.0),))) is None
    hopeless = 0.2, 0.01, chance_of(0.01), 0.05
    assert chosen(after({600: hopeless})) is None


@pytest.mark.parametrize("name", RULES)
def test_every_rule_decides_somewhere_and_can_be_switched_off(name: str) -> None:
    moved, late = (measured(3, 800, 11.0),), True
    search = {
        "worthwhile": after({700: GREAT}, trials=moved),
        "look-around": after({700: (-0.0005, 0.0002, 0.0, 0.01)}, trials=moved, late=not late),
        "unmoved": after({700: (0.2, 0.01, 0.0, 0.01)}),
        "informative": after(
            {600: (-0.4, 0.01, 0.14, 0.04)}, trials=(measured(3, 600, 6.0, 115.0),)
        ),
    }[name]
    alone = explore(search, without={*RULES} - {name})
    assert alone is not None
    assert alone == explore(search, without=frozenset())
    assert explore(search, without=set(RULES)) is None


def test_the_policy_offers_the_rules_that_there_are() -> None:
    assert Polythrottle.rules == (*RULES, FLAT)


def test_the_argmax_is_allowed_and_highest() -> None:
    at, score = ladder(), torch.tensor([3.0, 9.0, 5.0])
    rules = Rules(seen(at, at_baseline(at)))
    assert rules.argmax(score, torch.tensor([True, False, True])) == 2
    assert rules.argmax(score, torch.zeros(3, dtype=torch.bool)) is None


def test_the_baseline_is_measured_again_if_its_error_hides_a_saving() -> None:
    """600 has windows enough, and the limit is relative to a baseline of two windows."""
    at = ladder(constraints=("latency_p99_ms <= 1.1x baseline",))
    often = [measured(n, 600, 5.0, 109.0) for n in range(3, 3 + MOST_WINDOWS)]
    trials = [*at_baseline(at), *idle(at), *often]
    search = seen(at, trials, within=lambda s: s["gpu.clock_mhz"] in (600, 1000))
    assert search.deployable == (search.baseline,)
    answer = explore(search)
    assert answer is not None
    assert answer.setting == at.baseline
    absolute = seen(ladder(constraints=("latency_p99_ms <= 109.5",)), trials)
    less, more = (float(Rules(s).window_gain[s.baseline]) for s in (absolute, search))
    assert less < 0.5 * more
    pair = seen(replace(at, devices=("sim", "other")), trials)
    assert float(Rules(pair).window_gain[pair.baseline]) == 0.0, "one measures it, scaled by itself"
