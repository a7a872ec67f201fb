"""A simulated device as an agent sees it: late clocks, a stepping counter, heat, caps, faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.devices.simulated import Faults, SimulatedDevice, attach
from agents.devices.simulated.presets import PRESETS
from agents.target.side import Side
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import MeterContract
from tuner.core import (
    ActuationError,
    Clock,
    ConfigError,
    DeviceLost,
    MeasurementError,
    Origin,
    Part,
    Reading,
    Setting,
)

A100_SLOW = {"gpu.clock_mhz": 210}
WARM_S = 300.0


def simulated(spec: str = "a100", seed: int = 0, state_dir: Path | None = None) -> Side:
    return open_device(f"simulated:{spec}", seed=seed, state_dir=state_dir)


def clock_of(side: Side) -> Clock:
    assert side.clock is not None
    return side.clock


def window(side: Side, seconds: float) -> Reading:
    opened = side.meter.start()
    clock_of(side).sleep(seconds)
    return opened.stop()


def at(side: Side, setting: Setting, seconds: float = WARM_S) -> Side:
    side.actuator.apply(setting)
    clock_of(side).sleep(seconds)
    return side


@pytest.fixture(params=sorted(PRESETS))
def side(request: pytest.FixtureRequest) -> Side:
    return simulated(request.param)


@pytest.fixture
def later(side: Side) -> Callable[[], None]:
    return lambda: clock_of(side).sleep(2.03)


class TestSimulatedActuator(SettableContract):
    pass


class TestSimulatedMeter(MeterContract):
    origin = Origin.SIMULATED


class TestTime:
    def test_simulated_time_passes_only_in_sleep(self) -> None:
        clock = clock_of(simulated())
        assert clock.monotonic() == 0.0
        clock.sleep(0.25)
        clock.sleep(1e9 * 1e-9)
        clock.sleep(-3.0)
        assert clock.monotonic() == pytest.approx(1.25)

    def test_many_short_sleeps_measure_the_same_as_a_long_one(self) -> None:
        whole, parts = simulated(), simulated()
        for one in (whole, parts):
            one.actuator.apply({"gpu.clock_mhz": 810})
        long, short = whole.meter.start(), parts.meter.start()
        clock_of(whole).sleep(20.0)
        for _ in range(200):
            clock_of(parts).sleep(0.1)
        shown, in_parts = long.stop(), short.stop()
        for total in ("energy_j", "items"):
            assert in_parts.totals[total] == pytest.approx(shown.totals[total], rel=1e-3)

    def test_one_seed_one_history(self) -> None:
        def history(seed: int) -> Reading:
            return window(at(simulated(seed=seed), A100_SLOW, 1.0), 5.0)

        assert history(3) == history(3)
        assert history(3) != history(4)


class TestSettingDelay:
    def delay_s(self, seed: int) -> float:
        side = at(simulated(seed=seed), {}, 10.0)
        high = window(side, 1.0).estimates["power_w"].mean
        side.actuator.apply(A100_SLOW)
        before = clock_of(side).monotonic()
        while window(side, 0.1).estimates["power_w"].mean > 0.6 * high:
            assert clock_of(side).monotonic() - before < 2.3
        return clock_of(side).monotonic() - before

    def test_clocks_follow_within_two_seconds_each_time_differently(self) -> None:
        delays = [self.delay_s(seed) for seed in range(12)]
        assert min(delays) < 0.7 and max(delays) > 1.4
        assert delays[3] == self.delay_s(3)

    def test_after_settling_only_the_new_setting_is_seen(self) -> None:
        for seed in range(5):
            side = at(simulated(seed=seed), {}, 10.0)
            side.actuator.apply(A100_SLOW)
            clock_of(side).sleep(side.settle_s)
            settled = window(side, 5.0).estimates["throughput_per_s"].mean
            rested = window(at(side, {}, 60.0), 5.0).estimates["throughput_per_s"].mean
            assert settled == pytest.approx(rested, rel=0.05)

    def test_the_batch_follows_at_once(self) -> None:
        side = at(simulated(), {}, 10.0)
        side.actuator.apply({"batch_size": 1})
        shown = window(side, 0.5)
        assert shown.estimates["latency_p50_ms"].mean < 2.0
        assert side.space.knob("batch_size").part is Part.WORKLOAD


class TestCounter:
    def test_the_counter_steps_every_100_ms(self) -> None:
        side = at(simulated(), {}, 10.0)
        opened = side.meter.start()
        seen: list[float] = []
        for _ in range(100):
            clock_of(side).sleep(0.01)
            shown = opened.read()
            seen.append(shown.totals.get("energy_j", 0.0))
        assert seen[:9] == [0.0] * 9
        assert len(set(seen)) == 11
        steps = [b - a for a, b in pairwise(sorted(set(seen)))]
        assert all(20.0 < joules < 35.0 for joules in steps)

    def test_too_short_a_window_gives_no_energy_rather_than_zero(self) -> None:
        side = at(simulated(), {}, 10.0)
        shown = window(side, 0.05)
        assert "energy_j" not in shown.totals
        assert not {"energy_j", "power_w"} & shown.estimates.keys()
        assert shown.totals["items"] > 0.0


class TestHeat:
    def test_leakage_rises_as_the_chip_warms(self) -> None:
        side = simulated()
        cold = window(side, 2.0).estimates["power_w"].mean
        warm = window(at(side, {}, WARM_S), 60.0).estimates["power_w"].mean
        assert 1.005 < warm / cold < 1.10

    def test_earlier_heat_shows_until_the_device_has_cooled(self) -> None:
        # The same seed at the same time has the same noise: only the temperature differs.
        hot, cool = at(simulated(), {}), at(simulated(), {"gpu.clock_mhz": 210})
        for side in (hot, cool):
            side.actuator.apply({"gpu.clock_mhz": 1005})
            clock_of(side).sleep(2.0)
        assert (
            window(hot, 10.0).estimates["power_w"].mean
            > 1.002 * window(cool, 10.0).estimates["power_w"].mean
        )
        for side in (hot, cool):
            clock_of(side).sleep(WARM_S)
        late = [window(side, 10.0).estimates["power_w"].mean for side in (hot, cool)]
        assert late[0] == pytest.approx(late[1], rel=1e-3)


class TestPowerCap:
    def test_it_throttles_and_reports_for_how_long(self) -> None:
        free = window(at(simulated(), {}), 10.0)
        capped = window(at(simulated(), {"gpu.power_limit_w": 150}), 10.0)
        assert free.totals["throttled_power_s"] == 0.0
        assert capped.totals["throttled_power_s"] == pytest.approx(10.0)
        assert capped.estimates["power_w"].mean == pytest.approx(150.0, rel=0.03)
        assert (
            capped.estimates["throughput_per_s"].mean
            < 0.9 * free.estimates["throughput_per_s"].mean
        )

    def test_a_clock_that_fits_under_the_cap_is_left_alone(self) -> None:
        side = at(simulated(), {"gpu.clock_mhz": 810, "gpu.power_limit_w": 150})
        assert window(side, 10.0).totals["throttled_power_s"] == 0.0


class TestSurviving:
    def test_a_setting_outlives_a_killed_process(self, tmp_path: Path) -> None:
        script = (
            "import os, signal, sys\n"
            "from pathlib import Path\n"
            "from agents.devices.catalogue import open_device\n"
            "side = open_device('simulated:a100', seed=0, state_dir=Path(sys.argv[1]))\n"
            "side.actuator.apply({'gpu.clock_mhz': 1005, 'batch_size': 8})\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
        assert ended.returncode == -signal.SIGKILL
        again = simulated(state_dir=tmp_path)
        default = again.space.default
        assert again.actuator.read() == {**default, "gpu.clock_mhz": 1005, "batch_size": 8}
        reopened = window(again, 5.0).estimates["power_w"].mean
        assert reopened < 0.7 * window(at(simulated(), {}, 10.0), 5.0).estimates["power_w"].mean

    def test_each_device_remembers_for_itself(self, tmp_path: Path) -> None:
        simulated("a100", state_dir=tmp_path).actuator.apply(A100_SLOW)
        for other in ("a100/bert", "v100"):
            side = simulated(other, state_dir=tmp_path)
            assert side.actuator.read() == side.space.default

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"gpu.clock_mhz": 1005}', "3", "null"])
    def test_a_state_file_with_foreign_content_is_named(self, tmp_path: Path, text: str) -> None:
        simulated(state_dir=tmp_path).actuator.apply(A100_SLOW)
        (file,) = tmp_path.iterdir()
        file.write_text(text)
        with pytest.raises(ConfigError, match=file.name):
            simulated(state_dir=tmp_path)

    def test_a_full_disk_does_not_block_the_store_for_good_and_once_freed_takes_the_next_write(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "state.json"
        device = SimulatedDevice(PRESETS["a100"], "bert", seed=0, state_file=file)
        side = attach(device)
        side.actuator.apply({"batch_size": 1})
        full = tmp_path / f".state.json.{os.getpid()}"
        full.mkdir()
        side.actuator.apply({"batch_size": 8})
        assert side.actuator.read()["batch_size"] == 8, "as real hardware, it is set all the same"
        assert '"batch_size": 1' in file.read_text()
        full.rmdir()
        assert side.actuator.read()["batch_size"] == 8
        assert '"batch_size": 8' in file.read_text(), "without a restart"
        side.actuator.apply(side.space.default)
        again = SimulatedDevice(PRESETS["a100"], "bert", seed=0, state_file=file)
        assert again.read() == side.space.default


class TestFaults:
    @pytest.fixture
    def device(self) -> SimulatedDevice:
        return SimulatedDevice(PRESETS["orin"], "resnet50", seed=0)

    @pytest.fixture
    def side(self, device: SimulatedDevice) -> Side:
        return attach(device)

    def test_a_refused_change_changes_nothing(self, device: SimulatedDevice, side: Side) -> None:
        device.faults = Faults(refuse=True)
        with pytest.raises(ActuationError, match="refuses"):
            side.actuator.apply({"gpu.clock_mhz": 408})
        assert side.actuator.read() == side.space.default
        device.faults = Faults()
        side.actuator.apply({"gpu.clock_mhz": 408})
        assert side.actuator.read()["gpu.clock_mhz"] == 408

    def test_a_lost_device_neither_answers_nor_measures(
        self, device: SimulatedDevice, side: Side
    ) -> None:
        opened = side.meter.start()
        device.faults = Faults(lost=True)
        with pytest.raises(DeviceLost):
            side.actuator.read()
        with pytest.raises(DeviceLost):
            side.actuator.apply({"gpu.clock_mhz": 408})
        for failing in (side.meter.start, opened.read, opened.stop):
            with pytest.raises(MeasurementError, match="bus"):
                failing()

    @pytest.mark.parametrize(
        ("faults", "words"),
        [(Faults(counter="frozen"), "did not change"), (Faults(counter="backwards"), "ran back")],
    )
    def test_a_broken_counter_is_an_error_not_a_number(
        self, device: SimulatedDevice, side: Side, faults: Faults, words: str
    ) -> None:
        clock_of(side).sleep(30.0)
        device.faults = faults
        opened = side.meter.start()
        clock_of(side).sleep(1.0)
        assert "energy_j" not in opened.read().totals
        for _ in range(2):
            with pytest.raises(MeasurementError, match=words):
                opened.stop()
