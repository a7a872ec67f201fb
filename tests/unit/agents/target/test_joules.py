"""Integrated power: correct over late samples, and no joules for gaps between samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agents.target.joules import IntegratedJoules, drawn, in_background
from tests.builders import Time
from tests.errors import raised
from tuner.core import ActuationError, MeasurementError


def by_hand(_: float, job: Callable[[], None]) -> Callable[[], None]:
    return lambda: None


class Ramp:
    """A power that rises by a watt a second."""

    def __init__(self) -> None:
        self.clock = Time()
        self.lost = False

    def power_w(self) -> float:
        if self.lost:
            raise ActuationError("the sensor is gone")
        return self.clock.monotonic()


def test_a_ramp_is_integrated_exactly_however_late_the_samples() -> None:
    ramp = Ramp()
    joules = IntegratedJoules(ramp.power_w, ramp.clock, by_hand, 5000.0)
    began = ramp.clock.monotonic()
    for seconds in (0.05, 0.9, 0.2, 0.6):
        ramp.clock.sleep(seconds)
        shown = joules.read()
    end = ramp.clock.monotonic()
    assert shown == pytest.approx((end**2 - began**2) / 2.0)


def test_an_unsampled_gap_gives_no_measurement_from_then_on() -> None:
    ramp = Ramp()
    joules = IntegratedJoules(ramp.power_w, ramp.clock, by_hand, 5000.0)
    ramp.clock.sleep(1.2)
    with raised(MeasurementError, "1.2"):
        joules.read()
    ramp.clock.sleep(0.1)
    with raised(MeasurementError, "1.2"):
        joules.read()


def test_a_sensor_that_is_lost_once_spoils_the_window() -> None:
    ramp = Ramp()
    joules = IntegratedJoules(ramp.power_w, ramp.clock, by_hand, 5000.0)
    ramp.lost = True
    with raised(ActuationError, "gone"):
        joules.read()
    ramp.lost = False
    ramp.clock.sleep(1.2)
    with raised(ActuationError, "gone"):
        joules.read()


def test_a_power_that_no_device_draws_gives_no_measurement_from_then_on() -> None:
    """A rail read in another unit, or a sensor that answers -1 as an unsigned number."""
    ramp, watts = Ramp(), [20.0]
    joules = IntegratedJoules(lambda: watts[-1], ramp.clock, by_hand, 300.0)
    ramp.clock.sleep(0.5)
    assert joules.read() == pytest.approx(10.0)
    watts.append(4_294_967.295)
    with pytest.raises(MeasurementError, match="at most 300 W"):
        joules.read()
    watts.append(20.0)
    with pytest.raises(MeasurementError):
        joules.read()
    with pytest.raises(MeasurementError):
        IntegratedJoules(lambda: float("nan"), ramp.clock, by_hand, 300.0)


def test_energy_beyond_a_devices_power_in_the_time_is_not_believed() -> None:
    assert drawn(450.0, 1.0, 300.0, "it") == 450.0
    for joules in (-0.001, 601.0, float("nan")):
        with pytest.raises(MeasurementError, match="at most 300 W") as refused:
            drawn(joules, 1.0, 300.0, "it")
        assert "measure again" in refused.value.hint


def test_a_job_in_the_background_goes_on_until_it_is_ended() -> None:
    done: list[int] = []
    end = in_background(0.001, lambda: done.append(1))
    while len(done) < 3:
        pass
    end()
    count = len(done)
    assert count >= 3 and len(done) == count
