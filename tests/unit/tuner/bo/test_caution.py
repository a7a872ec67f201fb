"""How much a search dares, by level of safety."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tuner import guard
from tuner.bo.caution import CAUTION
from tuner.core import Safety

SAFEST_FIRST = (Safety.STRICT, Safety.BALANCED, Safety.OFF)


def test_a_shyer_search_is_in_nothing_bolder() -> None:
    assert set(CAUTION) == set(Safety)
    for shy, bold in pairwise(CAUTION[s] for s in SAFEST_FIRST):
        assert shy.price >= bold.price
        assert shy.overshoot_price >= bold.overshoot_price
        assert shy.first_trials >= bold.first_trials
        assert shy.first_factor >= bold.first_factor >= 1.0
        assert shy.least_chance >= bold.least_chance
        assert shy.stride <= bold.stride
        assert shy.deploy_chance >= bold.deploy_chance


@pytest.mark.parametrize("safety", SAFEST_FIRST)
def test_no_chance_that_a_search_takes_is_one_that_the_guard_refuses(safety: Safety) -> None:
    caution = CAUTION[safety]
    taken = (
        caution.least_chance,
        caution.look_chance,
        caution.first_chance,
        caution.unmoved_chance,
        caution.risky_chance,
    )
    assert min(taken) > guard.REFUSED[safety]
