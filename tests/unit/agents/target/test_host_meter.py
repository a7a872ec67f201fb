"""Windows over a host: throttling, and clocks above the ceilings that we set."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.target.host_meter import Ceiling, HostMeter
from tests.builders import Time
from tests.errors import raised
from tuner.core import ActuationError, MeasurementError


class Host:
    """A meter over files in a folder; `hot` is whether the host is throttled."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Time()
        self.hot = False
        self.ours = [Ceiling(root / "runs", 1500.0, 1600.0)]
        (root / "stat").write_text("cpu  1 0 0 9 0 0 0 0 0 0\n")
        self.run_at(1000)

    def run_at(self, clock: int) -> None:
        (self.root / "runs").write_text(str(clock))

    def meter(self) -> HostMeter:
        return HostMeter(
            stat=self.root / "stat",
            joules=None,
            watch=lambda: lambda: self.hot,
            ceilings=lambda: self.ours,
            clock=self.clock,
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_time_of_overheating_is_reported(host: Host) -> None:
    window = host.meter().start()
    host.clock.sleep(2.0)
    assert window.read().totals["throttled_thermal_s"] == 0.0
    host.hot = True
    host.clock.sleep(3.0)
    assert window.stop().totals["throttled_thermal_s"] == pytest.approx(3.0)


def test_a_clock_above_our_ceiling_in_most_looks_voids_the_window(host: Host) -> None:
    window = host.meter().start()
    host.run_at(2000)
    window.read()
    with raised(MeasurementError, "2000", "1500"):
        window.stop()


def test_a_clock_within_its_margin_does_not_void_the_window(host: Host) -> None:
    window = host.meter().start()
    host.run_at(1600)
    window.read()
    window.stop()


def test_a_clock_that_we_did_not_limit_contradicts_nothing(host: Host) -> None:
    host.ours = []
    window = host.meter().start()
    host.run_at(9000)
    window.read()
    window.stop()


def test_one_slow_look_in_many_does_not_void_the_window(host: Host) -> None:
    window = host.meter().start()
    host.run_at(2000)
    window.read()
    host.run_at(1500)
    window.read()
    window.stop()


def test_an_unreported_clock_is_not_wrong(host: Host) -> None:
    (host.root / "runs").unlink()
    host.meter().start().stop()


def test_a_lost_sensor_gives_no_measurement(host: Host) -> None:
    def lost() -> object:
        raise ActuationError("the sensor is gone", hint="reboot")

    meter = HostMeter(
        stat=host.root / "stat",
        joules=lost,  # type: ignore[arg-type]
        watch=lambda: lambda: False,
        ceilings=lambda: (),
        clock=host.clock,
    )
    with pytest.raises(MeasurementError, match="gone; reboot"):
        meter.start()
