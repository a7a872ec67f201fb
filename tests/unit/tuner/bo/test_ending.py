"""The reasons for the end of a search."""

from __future__ import annotations

import pytest

from tests.unit.tuner.bo.searches import (
    NOTHING,
    Belief4,
    at_baseline,
    believing,
    idle,
    ladder,
    measured,
)
from tuner.bo.ending import ending
from tuner.bo.explore import FIRST, explore
from tuner.bo.search import Search
from tuner.core import Safety

DEAR: Belief4 = (0.3, 0.01, 0.0, 0.01)
RISKY: Belief4 = (-0.1, 0.01, 0.19, 0.02)
"""It saves a tenth, and keeps the limit with a chance of one in three."""


def after(world: dict[int, Belief4], safety: Safety, windows: int = 1, count: int = 20) -> Search:
    """Return a search after windows of 800 MHz, which costs more than the baseline."""
    at = ladder(count, safety)
    trials = [*at_baseline(at), *idle(at), *(measured(3 + n, 800, 13.0) for n in range(windows))]
    return believing(at, trials, {1000: NOTHING, 800: DEAR, **world}, rest=DEAR)


@pytest.mark.parametrize("safety", Safety)
def test_a_search_ends_because_nothing_promises_a_gain(safety: Safety) -> None:
    search = after({}, safety)
    assert explore(search) is None
    assert ending(search) == "no setting left is likely to gain 0.2 %"


@pytest.mark.parametrize("safety", [Safety.STRICT, Safety.BALANCED, Safety.ADVISE])
def test_a_search_that_ends_for_a_risk_names_the_setting_and_the_bolder_level(
    safety: Safety,
) -> None:
    search = after({600: RISKY}, safety)
    assert explore(search) is None
    why = ending(search)
    assert why.startswith("what would gain is too likely to break latency_p99_ms <= 120 (best: ")
    assert "gpu.clock_mhz=600" in why.replace(" = ", "=")
    assert "9." in why
    assert "chance 35 %" in why
    assert why.split("; ")[1].startswith("with safety off it would try ")


def test_a_search_whose_first_windows_prove_nothing_reports_that() -> None:
    search = after({500: (-0.01, 0.01, 0.0, 0.01)}, Safety.BALANCED, FIRST)
    assert explore(search) is None
    assert ending(search) == "no gain is proven yet"


def test_a_search_without_trials_left_gives_their_number() -> None:
    search = after({600: RISKY}, Safety.BALANCED, count=2)
    assert ending(search) == "all 2 trials are used"
