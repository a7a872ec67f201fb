"""The risk that a search takes, by level of safety."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tuner import guard
from tuner.bo.caution import CAUTION, even_chance, last_chance
from tuner.core import Safety

SAFEST_FIRST = (Safety.STRICT, Safety.BALANCED, Safety.OFF)


def test_a_shyer_search_is_bolder_in_nothing() -> None:
    assert set(CAUTION) == set(Safety)
    for shy, bold in pairwise(CAUTION[s] for s in SAFEST_FIRST):
        assert shy.violation > bold.violation
        assert shy.wrong >= bold.wrong
        assert shy.trial >= bold.trial


@pytest.mark.parametrize("safety", SAFEST_FIRST)
def test_the_guard_accepts_every_chance_that_a_search_takes(safety: Safety) -> None:
    assert last_chance(CAUTION[safety]) >= guard.REFUSED[safety]


@pytest.mark.parametrize("cost", [0.1, 1.0, 4.0])
def test_at_even_chances_winning_makes_up_for_losing(cost: float) -> None:
    chance = even_chance(cost)
    assert chance == pytest.approx(cost * (1.0 - chance))
