from __future__ import annotations

from math import log

import pytest

from tests.builders import baseline, past, study
from tests.contracts.posteriors import posterior
from tuner.bo.agreement import AS_GOOD, agreed_plan
from tuner.core import Posterior, Setting

HELD = {"gpu.clock_mhz": 600, "batch_size": 1}
OTHER = {"gpu.clock_mhz": 800, "batch_size": 1}
AT_BASELINE = {"energy_j": 10.0, "latency_p99_ms": 100.0}
ABOUT = past(study(), baseline(study()))


def holds(
    held: Setting = HELD,
    energy: tuple[float, float] = (-0.3, -0.3),
    latency: tuple[float, float] = (0.1, 0.1),
    unsure: float = 0.0,
    **changes: object,
) -> Posterior:
    """Return a posterior of one that holds a setting, with the log ratios of `HELD` and `OTHER`."""
    fields = {
        "points": ((0.0, 0.0), (log(0.6), 0.0), (log(0.8), 0.0)),
        "means": ((0.0, *energy), (0.0, *latency)),
        "directions": (((0.0, unsure, 0.0), (0.0, 0.0, 0.0)),),
        "baseline": AT_BASELINE,
        "held": held,
    }
    return posterior(**{**fields, **changes})  # type: ignore[arg-type]


def test_what_three_like_studies_hold_is_verified() -> None:
    assert agreed_plan([holds()] * 3, ABOUT) == (HELD, 3)
    assert agreed_plan([holds()] * 2, ABOUT) == ({}, 0)
    dear = holds(OTHER, energy=(-0.2, -0.3))
    assert agreed_plan([*[holds(energy=(-0.3, -0.2))] * 3, dear], ABOUT) == (HELD, 3)


def test_of_plans_that_all_believe_alike_the_cheapest_is_verified() -> None:
    like = [holds(own, energy=(-0.300, -0.305)) for own in (HELD, HELD, OTHER)]
    assert agreed_plan(like, ABOUT) == (OTHER, 3)


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        (holds(OTHER, energy=(-0.3, -0.3 - AS_GOOD / 2)), True),
        (holds(OTHER, energy=(-0.3, -0.3 - AS_GOOD * 2)), False),
        (holds(OTHER, unsure=AS_GOOD * 2), False),
        (holds(OTHER, latency=(log(1.21), 0.1)), False),
        (holds(OTHER, knobs=posterior().knobs[:1], points=((0.0,),) * 3), False),
        (holds(dict(study().baseline), energy=(0.0, 0.0)), True),
    ],
    ids=["as good", "worse", "unsure", "above the limit", "a knob less", "at its baseline"],
)
def test_one_with_another_plan_agrees_if_it_believes_this_one_as_good(
    other: Posterior, agrees: bool
) -> None:
    first = [holds(energy=(-0.3, -0.2))] * 2
    assert agreed_plan([*first, other], ABOUT) == ((HELD, 3) if agrees else ({}, 0))


@pytest.mark.parametrize(
    "changes",
    [
        {"held": {}},
        {"held": {"gpu.clock_mhz": 1000, "batch_size": 1}},
        {"held": {"gpu.clock_mhz": 500, "batch_size": 1}},
        {"baseline": {}},
        {"baseline": {"energy_j": 10.0, "latency_p99_ms": 115.0}},
    ],
    ids=["no plan", "the baseline", "not offered", "none", "slower"],
)
def test_what_does_not_fit_is_not_verified(changes: dict[str, object]) -> None:
    assert agreed_plan([holds(**changes)] * 3, ABOUT) == ({}, 0)  # type: ignore[arg-type]
