"""Properties of the physics for all numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.devices.simulated.noise import mean_factor, quantile_factor
from agents.devices.simulated.physics import Curve, OperatingPoint, Thermal
from agents.devices.simulated.presets import PRESETS, WORKLOADS

seconds = st.floats(0.001, 500.0)
watts = st.floats(0.0, 400.0)
celsius = st.floats(10.0, 110.0)
presets = st.sampled_from(sorted(PRESETS))
workloads = st.sampled_from(sorted(WORKLOADS))
shares = st.floats(0.0, 1.0)


@st.composite
def points(draw: st.DrawFn, preset: str) -> OperatingPoint:
    """A point between the device's lowest and highest clocks, its power limit anywhere."""
    chip = PRESETS[preset].chip

    def between(low: float, high: float) -> float:
        return low + draw(shares) * (high - low)

    return OperatingPoint(
        between(chip.min_gpu_mhz, chip.gpu.max_mhz),
        between(chip.mem.max_mhz / 5, chip.mem.max_mhz),
        between(chip.cpu.max_mhz / 5, chip.cpu.max_mhz),
        between(10.0, 400.0),
        draw(st.integers(1, 64)),
    )


class TestVoltage:
    @given(st.floats(100.0, 1000.0), st.floats(0.0, 0.002), st.floats(50.0, 3000.0))
    def test_a_curve_is_flat_and_then_rises(
        self, threshold: float, slope: float, mhz: float
    ) -> None:
        squared = Curve(threshold, slope).squared(mhz)
        if mhz <= threshold:
            assert squared == 1.0
        assert 1.0 <= squared <= Curve(threshold, slope).squared(mhz + 1.0)


class TestThermal:
    NODE = PRESETS["a100"].chip.thermal

    @given(celsius, watts, seconds, seconds, st.booleans())
    def test_one_long_step_equals_two_short_ones(
        self, start: float, load: float, first: float, second: float, leaking: bool
    ) -> None:
        middle, early = self.NODE.warm(start, load, first, leaking=leaking)
        end, late = self.NODE.warm(middle, load, second, leaking=leaking)
        at_once, energy = self.NODE.warm(start, load, first + second, leaking=leaking)
        assert end == pytest.approx(at_once)
        assert early + late == pytest.approx(energy)

    @given(celsius, watts, seconds)
    def test_energy_in_is_heat_stored_plus_heat_given_off(
        self, start: float, load: float, length: float
    ) -> None:
        # In so short a step the mean temperature is the middle of its ends.
        short = length / 50_000.0
        end, energy = self.NODE.warm(start, load, short, leaking=True)
        lost = ((start + end) / 2.0 - self.NODE.ambient_c) / self.NODE.k_per_w * short
        stored = self.NODE.j_per_k * (end - start)
        assert energy == pytest.approx(stored + lost, rel=1e-4, abs=1e-6)

    @given(celsius, watts)
    def test_it_settles_at_the_steady_state(self, start: float, load: float) -> None:
        end, _ = self.NODE.warm(start, load, 1e5, leaking=True)
        assert end == pytest.approx(self.NODE.settled_c(load, leaking=True))

    def test_a_hotter_chip_leaks_more(self) -> None:
        node = Thermal(ambient_c=30.0, leak_w=10.0, leak_per_k=0.01, k_per_w=0.1, j_per_k=100.0)
        assert node.leakage_w(80.0) == pytest.approx(1.5 * node.leakage_w(30.0))


class TestPace:
    @given(st.data(), presets, workloads)
    def test_faster_clocks_never_slow_a_batch_and_never_save_power(
        self, data: st.DataObject, preset: str, workload: str
    ) -> None:
        chip, work = PRESETS[preset].chip, PRESETS[preset].work(workload)
        point = data.draw(points(preset))
        for faster in (
            replace(point, gpu_mhz=point.gpu_mhz * 1.1),
            replace(point, mem_mhz=point.mem_mhz * 1.1),
            replace(point, cpu_mhz=point.cpu_mhz * 1.1),
        ):
            before = chip.pace(work, point, point.gpu_mhz)
            after = chip.pace(work, faster, faster.gpu_mhz)
            assert after.step_s <= before.step_s
            assert after.power_w >= before.power_w * (1.0 - 1e-9)

    @given(st.data(), presets, workloads, celsius)
    def test_a_cap_is_kept_with_the_highest_clock_that_keeps_it(
        self, data: st.DataObject, preset: str, workload: str, temperature: float
    ) -> None:
        chip, work = PRESETS[preset].chip, PRESETS[preset].work(workload)
        point = data.draw(points(preset))
        pace = chip.capped(work, point, temperature)
        total = pace.power_w + chip.thermal.leakage_w(temperature)
        assert pace.gpu_mhz <= point.gpu_mhz
        if pace.gpu_mhz > chip.min_gpu_mhz:
            assert total <= point.limit_w + 1e-9
        if pace.gpu_mhz < point.gpu_mhz:
            one_more = chip.pace(work, point, pace.gpu_mhz + 1.0)
            assert one_more.power_w + chip.thermal.leakage_w(temperature) > point.limit_w

    @given(st.data(), presets, workloads)
    def test_the_settled_state_agrees_with_a_long_wait(
        self, data: st.DataObject, preset: str, workload: str
    ) -> None:
        chip, work = PRESETS[preset].chip, PRESETS[preset].work(workload)
        point = data.draw(points(preset))
        pace, total = chip.settled(work, point)
        hot = chip.thermal.settled_c(total, leaking=False)
        waited = chip.capped(work, point, hot)
        assert waited.power_w + chip.thermal.leakage_w(hot) == pytest.approx(total, rel=1e-4)
        assert waited.step_s == pytest.approx(pace.step_s, rel=1e-3)


def test_quantiles_of_the_noise_are_in_order() -> None:
    quantiles = [quantile_factor(q) for q in (0.05, 0.50, 0.90, 0.99, 0.999)]
    assert all(a < b for a, b in pairwise(quantiles))
    assert quantiles[1] == pytest.approx(1.0, abs=0.01)
    assert quantiles[1] < mean_factor() < quantiles[2]
