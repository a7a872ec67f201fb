"""The metrics of speculation in a window."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from agents.host.machine import HostClock
from agents.load.generator import LoadRun, LoadShape
from agents.speculation.messages import SpeculationStats
from agents.speculation.meter import (
    DecodingWindow,
    PromptWindow,
    TokenTimes,
    accepted_metrics,
    speculation_shown,
)
from tuner.core import MeasurementError, Reading

ZERO = dict.fromkeys(
    (
        *("items", "failed", "arrived", "inside", "in_flight_s", "decoding", "decoding_s"),
        *("decoding_busy_s", "slots", "requests", "untold", "passes", "generating_s", "drafted"),
        *(
            "accepted",
            "steps",
            "steps_accepted",
            "switches",
            "switch_s",
            "restarts",
            "repeated",
            "cpu_s",
        ),
    ),
    0,
)


def stats(**fields: Any) -> SpeculationStats:  # noqa: ANN401  any field
    return SpeculationStats.model_validate({**ZERO, "incarnation": "a", **fields})


def test_acceptance_by_position_is_the_share_of_steps() -> None:
    before = stats(steps=100, steps_accepted=100, accepted_by_position=(60, 40))
    now = stats(steps=500, steps_accepted=520, accepted_by_position=(360, 160, 0))
    shown = speculation_shown(before, now, 3)
    assert [shown[f"accepted_at_{i}"].mean for i in (1, 2, 3)] == [0.75, 0.3, 0.0]
    assert shown["accepted_at_1"].stderr == pytest.approx(math.sqrt(0.75 * 0.25 / 400))
    assert shown["accepted_per_step"].mean == pytest.approx(1.05)
    assert shown["accepted_per_step"].n == 400
    # 1 was accepted in 45 % of the steps, 2 in 30 %: the mean square is 0.45 + 4 × 0.3.
    spread = math.sqrt((1.65 - 1.05**2) / 400)
    assert shown["accepted_per_step"].stderr == pytest.approx(spread)


def test_without_positions_steps_are_drafted_tokens_over_the_length() -> None:
    now = stats(drafted=400, accepted=150, passes=200, generating_s=2.0)
    shown = speculation_shown(stats(), now, 4)
    assert shown["accepted_per_step"].mean == 1.5
    assert shown["accepted_per_step"].stderr == pytest.approx(math.sqrt(1.5 * 2.5 / 100))
    assert "accepted_at_1" not in shown
    assert "step_ms" not in shown  # every second pass of such a build is plain


def test_a_window_without_speculation_gives_the_time_of_its_passes() -> None:
    shown = speculation_shown(stats(), stats(passes=200, generating_s=2.0), 0)
    assert shown["step_ms"].mean == 10.0
    assert "accepted_per_step" not in shown


@pytest.mark.parametrize("accepted", [0, 400])
def test_none_or_all_accepted_divides_by_no_zero(accepted: int) -> None:
    now = stats(steps=100, steps_accepted=accepted, accepted_by_position=(accepted // 4,) * 4)
    shown = speculation_shown(stats(), now, 4)
    assert shown["accepted_per_step"].mean == accepted / 100
    assert shown["accepted_per_step"].stderr == 0.0


def test_the_load_is_the_mean_over_the_time_in_which_any_decoded() -> None:
    shown = speculation_shown(stats(), stats(decoding_s=12.0, decoding_busy_s=4.0), 2)
    assert shown["decoding_requests"].mean == 3.0


def test_an_empty_window_shows_nothing() -> None:
    assert speculation_shown(stats(), stats(), 4) == {}


def test_each_metric_declares_its_meaning() -> None:
    units = {metric.name: metric.quantity.unit for metric in accepted_metrics(2)}
    assert units == {
        "accepted_at_1": "1",
        "accepted_at_2": "1",
        "accepted_per_step": "1",
        "decoding_requests": "1",
        "step_ms": "ms",
    }


class Endless:
    """A caller that gets each answer at once, until it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def send(self) -> str:
        return "closed" if self.closed else ""

    def close(self) -> None:
        self.closed = True


class Gone:
    """The counters of a proxy that has ended."""

    def read(self) -> Reading:
        raise MeasurementError("the proxy does not answer")

    stop = read


def test_the_load_ends_with_its_window_though_the_proxy_has_ended() -> None:
    caller = Endless()
    run = LoadRun(lambda: caller, LoadShape(1), clock=HostClock())
    window = PromptWindow(run, cast("DecodingWindow", Gone()), TokenTimes(), 0.0)
    with pytest.raises(MeasurementError):
        window.stop()
    assert caller.closed
