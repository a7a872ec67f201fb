"""The conversion of windows to the model's data."""

from __future__ import annotations

import math

import pytest

from policies.speculation.grid import Cell, Choice
from policies.speculation.windows import believable, observations, shared
from tests.builders import trial, window
from tests.unit.policies.speculation.machine import decoding_study, space
from tuner.core import Estimate, Quantity, Trial
from tuner.core.quantities import Better, Kind

AT = decoding_study(space())
CELL = Cell(4, Choice(2, ()))


def seen(number: int, rate: float, **extra: float) -> tuple[Trial, Cell]:
    estimates = {name: Estimate.of_mean(mean, 0.01, 400) for name, mean in extra.items()}
    estimates["throughput_per_s"] = Estimate.of_mean(rate, 0.01 * rate, 20)
    return trial(number, {"length": 2}, window(extra=estimates)), CELL


def test_a_window_with_acceptance_gives_the_time_of_its_step() -> None:
    windows = believable([seen(1, 20.0, accepted_at_1=0.8, accepted_at_2=0.5)], AT)
    step = next(o for o in observations(windows, {CELL}) if o.what == "step")
    assert step.value == pytest.approx(math.log(4 * (1 + 1.3) / 20.0))
    tokens = [o.value for o in observations(windows, {CELL}) if o.what == "tokens"]
    assert tokens == [pytest.approx(math.log1p(1.3))]


def test_a_window_without_drafts_gives_the_cost_of_a_token() -> None:
    observed = observations(believable([seen(1, 20.0)], AT), {CELL})
    assert [o.what for o in observed] == ["cost"]
    assert observed[0].value == pytest.approx(math.log(4 / 20.0))


def test_windows_of_a_cell_are_one_value_known_better() -> None:
    one = observations(believable([seen(1, 20.0)], AT), {CELL})[0]
    two = observations(believable([seen(1, 20.0), seen(2, 20.4)], AT), {CELL})
    assert len(two) == 1
    assert two[0].sd < one.sd
    assert one.value > two[0].value > math.log(4 / 20.4)


def test_a_step_measured_with_another_text_is_unchanged() -> None:
    before = seen(1, 20.0, accepted_at_1=0.9, accepted_at_2=0.8)
    after = seen(2, 4 * 1.11 / (4 * 2.7 / 20.0), accepted_at_1=0.1, accepted_at_2=0.01)
    observed = observations(believable([before, after], AT), {CELL})
    step = next(o for o in observed if o.what == "step")
    assert step.value == pytest.approx(math.log(4 * 2.7 / 20.0), abs=1e-3)
    tokens = next(o for o in observed if o.what == "tokens")
    assert tokens.value == pytest.approx(math.log1p(0.11), abs=1e-3)


def test_timings_of_the_parts_give_their_ratio() -> None:
    windows = believable([seen(1, 20.0, verify_ms=100.0, draft_ms=5.0)], AT)
    ratio = next(o for o in observations(windows, {CELL}) if o.what == "drafting")
    assert ratio.value == pytest.approx(math.log(0.1))


def test_windows_with_impossible_figures_are_left_out() -> None:
    assert believable([seen(1, 20.0, accepted_at_1=3.0, accepted_at_2=0.5)], AT) == []


@pytest.mark.parametrize(
    ("metric", "is_shared"),
    [
        ("throughput_per_s", True),
        ("energy_j", True),
        ("cpu_time_ms", True),
        ("inter_token_ms", False),
        ("latency_p99_ms", False),
    ],
)
def test_a_step_is_shared_by_its_sequences_except_for_waiting_requests(
    metric: str, *, is_shared: bool
) -> None:
    assert shared(metric, {}) is is_shared


def test_a_declared_metric_is_shared_as_it_is_declared() -> None:
    assert shared("decode_ms", {"decode_ms": Quantity("ms", Better.LESS, Kind.TIME)}) is False
