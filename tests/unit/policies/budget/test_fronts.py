"""A front of power against throughput from trials: only measured points, and only of knobs that varied."""

from __future__ import annotations

import math

from policies.budget.fronts import PowerFront, front_of
from tests.builders import past, setting, study, trial, window
from tuner.core import Estimate, Measurement, Phase, Trial


def shown(watts: float, rate: float, latency_ms: float) -> Measurement:
    power = {"power_w": Estimate.of_mean(watts, 0.01 * watts, 10)}
    return window(watts / rate, latency_ms, rate=rate, extra=power, context={})


def tried(*windows: Measurement) -> list[Trial]:
    clocks = (1000, 1000, 800, 600, 400)
    return [
        trial(n, setting(clock), one, phase=Phase.BASELINE if n <= 2 else Phase.TUNING)
        for n, (clock, one) in enumerate(zip(clocks, windows, strict=True), start=1)
    ]


def test_the_front_is_throughput_by_power_of_settings_that_none_beats() -> None:
    trials = tried(*[shown(300.0, 50.0, 100.0)] * 2, *(
        shown(*one) for one in ((200.0, 45.0, 110.0), (210.0, 40.0, 112.0), (150.0, 30.0, 190.0))
    ))  # fmt: skip
    front = front_of(past(study(), trials))
    assert front.metric == "throughput_per_s"
    assert [round(w) for w, _ in front.points] == [150, 200, 300]
    assert front.needs_w is not None
    assert round(front.needs_w) == 200


def test_throughput_that_is_the_loads_gives_way_to_latency() -> None:
    trials = tried(*[shown(300.0, 50.0, 100.0)] * 2, *(
        shown(*one) for one in ((200.0, 50.0, 110.0), (180.0, 50.0, 130.0), (150.0, 50.0, 200.0))
    ))  # fmt: skip
    front = front_of(past(study(), trials))
    assert front.metric == "latency_p99_ms"
    assert [round(1.0 / rate) for _, rate in front.points] == [200, 130, 110, 100]


def test_a_limit_that_no_setting_kept_needs_more_than_any_cap() -> None:
    trials = tried(*[shown(300.0, 50.0, 100.0)] * 2, *(
        shown(*one) for one in ((200.0, 45.0, 110.0), (180.0, 40.0, 130.0), (150.0, 30.0, 200.0))
    ))  # fmt: skip
    front = front_of(past(study(constraints=("latency_p99_ms <= 50",)), trials))
    assert front.needs_w == math.inf


def test_too_few_settings_give_no_front() -> None:
    trials = [trial(n, setting(), shown(300.0, 50.0, 100.0), phase=Phase.BASELINE) for n in (1, 2)]
    assert front_of(past(study(), trials)).points == ()
    assert front_of(past(study(), [])) == PowerFront()
