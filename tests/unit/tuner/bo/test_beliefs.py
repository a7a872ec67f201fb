"""What the evidence of a baseline alone tells of settings that nobody has tried."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.builders import asked, knob, setting, trial, window
from tests.unit.tuner.bo.searches import ladder, seen
from tuner.bo.beliefs import baseline_facts
from tuner.core import Estimate, Measurement, Phase, Space, Value, setting_key, weigh


def slower_under_three_quarters(limit: float, name: str) -> float:
    """Return how much slower (log) a workload should be that draws 100 W, under 3/4 of its limit."""
    at = asked(20, space=Space((knob(name, (0.5 * limit, 0.75 * limit, limit), limit),)))
    shown = window(2.0, 100.0, rate=50.0)
    found = seen(at, [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (1, 2)])
    row = found.grid.rows[setting_key({name: 0.75 * limit})]
    return float(found.view.belief.mean[row, 1])


@pytest.mark.parametrize(
    ("name", "unit"), [("gpu.power_limit_w", 1.0), ("power_limit_mw", 1e3), ("limit_uw", 1e6)]
)
def test_a_limit_far_above_what_the_baseline_draws_is_not_thought_to_bind(
    name: str, unit: float
) -> None:
    """Drivers take watts, milliwatts or microwatts."""
    ample, tight = (slower_under_three_quarters(w * unit, name) for w in (200.0, 102.0))
    assert ample < 0.5 * tight


def test_what_several_devices_draw_is_shared_among_their_limits() -> None:
    """Four GPUs that draw 400 W together under 120 W each are as near to their limits as one at 100 W."""

    def drawn(devices: tuple[str, ...], power_w: float) -> float | None:
        at = asked(20, space=Space((knob("gpu.power_limit_w", (60.0, 120.0), 120.0),)))
        at = replace(at, devices=devices)
        shown = window(2.0, 100.0, rate=50.0)
        estimates = {**shown.estimates, "power_w": Estimate(power_w, 1.0)}
        told = [trial(1, at.baseline, replace(shown, estimates=estimates), phase=Phase.BASELINE)]
        return baseline_facts(at, weigh(at, told), ["energy_j"]).drawn

    alone = drawn(("gpu",), 100.0)
    assert alone == pytest.approx(0.83)
    assert drawn(("a", "b", "c", "d"), 400.0) == alone


def chance_of_a_low_ceiling(rate: float) -> float:
    """Return how likely 4 at a time keep the limit that 64 kept, at so many requests/s of 0.1 s."""
    at = asked(20, space=Space((knob("max_num_seqs", (4, 64), 64),)))
    shown = window(2.0, 100.0, rate=rate)
    found = seen(at, [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (1, 2)])
    return float(found.chance[found.grid.rows[setting_key({"max_num_seqs": 4})]])


def test_a_ceiling_that_is_not_full_may_be_one_below_which_requests_queue() -> None:
    """Ten requests/s fill nothing of 64 places, four hundred do."""
    assert chance_of_a_low_ceiling(10.0) < chance_of_a_low_ceiling(400.0) - 0.1


@pytest.mark.parametrize("unlimited", [0, False, "none"])
def test_a_ceiling_of_nothing_is_none(unlimited: Value) -> None:
    at = asked(20, space=Space((knob("max_num_seqs", (unlimited, 16, 64), unlimited),)))
    shown = window(2.0, 100.0, rate=10.0)
    found = seen(at, [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (1, 2)])
    assert torch.isfinite(found.view.belief.mean).all()


def worlds(**sizes: int) -> int:
    """Return how many kinds of laws are thought possible where 8 items are under way."""
    knobs = tuple(knob(name, tuple({1, size}), size) for name, size in sizes.items())
    at = asked(20, space=Space(knobs))
    shown = window(2.0, 100.0, rate=80.0)
    trials = [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (1, 2)]
    evidence = weigh(at, trials)
    return len(baseline_facts(at, evidence, ("energy_j", "latency_p99_ms")).stepwise)


def test_only_of_one_batch_size_does_the_baseline_tell_whose_time_a_latency_is() -> None:
    """With two of them nobody knows which one the items under way belong to."""
    assert worlds(batch_size=8) == 1
    assert worlds(prefill_batch_size=8, decode_batch_size=8) == 2
    assert worlds(batch_size=8, max_num_batched_tokens=8192) == 2


def test_a_doubtful_limit_near_zero_is_as_doubtful_as_its_baseline() -> None:
    """1.5 × (1.0 ± 0.14) dropped: 0 keeps that for sure, however far off the worst reading is."""
    at = ladder(constraints=("dropped <= 1.5x baseline",))

    def shown(energy_j: float, dropped: float, stderr: float) -> Measurement:
        return window(energy_j, extra={"dropped": Estimate.of_mean(dropped, stderr, 50)})

    start = [trial(n, at.baseline, shown(10.0, 1.0, 0.2), phase=Phase.BASELINE) for n in (1, 2)]
    none, many = shown(6.0, 0.0, 0.01), shown(7.0, 100.0, 1.0)
    found = seen(at, [*start, trial(3, setting(500), none), trial(4, setting(600), many)])
    assert float(found.chance[found.grid.rows[setting_key(setting(500))]]) > 0.95
