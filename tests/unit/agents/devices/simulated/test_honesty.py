"""The simulator against published figures, its measurements against its own truth, its landscape."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agents.devices.catalogue import Truth, known_truth, open_device, oracle
from agents.devices.simulated.presets import PRESETS, WORKLOADS
from tuner.core import Limit, Objective, Setting, Space

LATENCY = "latency_p99_ms"
PUBLISHED_SIZES = {"tx2": 13 * 11 * 7 * 5, "orin": 13 * 4 * 7 * 5}
SPECS = [f"{preset}/{workload}" for preset in PRESETS for workload in WORKLOADS]


def truth_of(spec: str) -> Truth:
    truth = known_truth(f"simulated:{spec}")
    assert truth is not None
    return truth


def space_of(spec: str) -> Space:
    return open_device(f"simulated:{spec}", seed=0, state_dir=None).space


# Afzal et al., arXiv 2607.00819, fitted GROMACS power curves of the A100, cases 6, 3 and 1:
# b1·f + c1 up to 810 MHz, a2·f² + b2·f + c2 above.
CURVES = {
    "resnet50": (0.08242, 60.18, 5.31486e-4, -0.93570, 544.235),
    "bert": (0.06333, 59.61, 3.86726e-4, -0.66934, 403.809),
    "efficientnet": (0.04770, 61.80, 3.02798e-4, -0.52438, 329.556),
}


class TestPublishedFigures:
    @pytest.mark.parametrize("workload", CURVES)
    @pytest.mark.parametrize("mhz", [210, 810, 1110, 1410])
    def test_the_simulated_a100_draws_the_published_power(self, workload: str, mhz: int) -> None:
        b1, c1, a2, b2, c2 = CURVES[workload]
        published = b1 * mhz + c1 if mhz <= 810 else a2 * mhz**2 + b2 * mhz + c2
        spec = f"a100/{workload}"
        setting = {**space_of(spec).default, "gpu.clock_mhz": mhz}
        assert truth_of(spec)(setting)["power_w"] == pytest.approx(published, rel=0.10)

    # ml-energy/zeus, tests/profile_data, ResNet50: watts of the cap, seconds and joules of one job.
    @pytest.mark.parametrize(
        ("preset", "full_w", "best_w", "energy", "seconds"),
        [("v100", 250, 150, -0.20, 0.22), ("a40", 300, 175, -0.22, 0.16)],
    )
    def test_a_power_cap_has_the_measured_cost_and_saving(
        self, preset: str, full_w: int, best_w: int, energy: float, seconds: float
    ) -> None:
        truth, default = truth_of(preset), space_of(preset).default
        full = truth({**default, "gpu.power_limit_w": full_w})
        best = truth({**default, "gpu.power_limit_w": best_w})
        saved = best["energy_j"] / full["energy_j"] - 1.0
        slower = full["throughput_per_s"] / best["throughput_per_s"] - 1.0
        assert saved == pytest.approx(energy, abs=0.04)
        assert slower == pytest.approx(seconds, abs=0.05)

    @pytest.mark.parametrize(("preset", "least_w"), [("v100", 150), ("a40", 175)])
    def test_the_best_cap_is_the_measured_one(self, preset: str, least_w: int) -> None:
        truth, space = truth_of(preset), space_of(preset)

        def energy_j(watts: object) -> float:
            return truth({**space.default, "gpu.power_limit_w": int(str(watts))})["energy_j"]

        assert min(space.knob("gpu.power_limit_w").values, key=energy_j) == least_w


class TestWindowsAgainstTruth:
    METRICS = ("energy_j", "power_w", LATENCY, "latency_p50_ms", "latency_mean_ms")

    @pytest.mark.parametrize("spec", ["a100", "v100/bert", "orin", "tx2/efficientnet"])
    def test_bounds_hold_the_truth_at_their_stated_rate(self, spec: str) -> None:
        truth, runs = truth_of(spec), 40
        above = dict.fromkeys((*self.METRICS, "throughput_per_s"), 0)
        below = dict.fromkeys(above, 0)
        for seed in range(runs):
            side = open_device(f"simulated:{spec}", seed=seed, state_dir=None)
            assert side.clock is not None
            side.clock.sleep(200.0)
            window = side.meter.start()
            side.clock.sleep(10.0 + 0.01 * seed)
            shown, true = window.stop(), truth(side.space.default)
            for name in above:
                above[name] += true[name] > shown.estimates[name].high
                below[name] += true[name] < shown.estimates[name].low
        # 5 % should lie outside on each side: 2 of 40; more than 6 would have p < 0.4 %.
        assert max(above.values()) <= 6, above
        assert max(below.values()) <= 6, below

    @pytest.mark.parametrize("spec", ["a40", "orin/bert"])
    def test_a_short_window_is_off_by_one_or_two_percent(self, spec: str) -> None:
        true = truth_of(spec)(space_of(spec).default)
        off: dict[str, list[float]] = {"energy_j": [], LATENCY: []}
        for seed in range(30):
            side = open_device(f"simulated:{spec}", seed=seed, state_dir=None)
            assert side.clock is not None
            side.clock.sleep(200.0)
            window = side.meter.start()
            side.clock.sleep(2.0)
            shown = window.stop()
            for name, values in off.items():
                values.append((shown.estimates[name].mean / true[name] - 1.0) ** 2)
        for name, values in off.items():
            assert 0.005 < (sum(values) / len(values)) ** 0.5 < 0.04, name

    def test_a_very_long_window_finds_the_true_tail(self) -> None:
        side = open_device("simulated:orin", seed=1, state_dir=None)
        assert side.clock is not None
        window = side.meter.start()
        side.clock.sleep(600.0)
        true = truth_of("orin")(side.space.default)
        assert window.stop().estimates[LATENCY].mean == pytest.approx(true[LATENCY], rel=0.01)

    def test_a_window_under_a_cap_is_honest_too(self) -> None:
        side = open_device("simulated:a40", seed=5, state_dir=None)
        assert side.clock is not None
        side.actuator.apply({"gpu.power_limit_w": 150})
        side.clock.sleep(300.0)
        window = side.meter.start()
        side.clock.sleep(100.0)
        true, shown = truth_of("a40")(side.actuator.read()), window.stop()
        for name in ("energy_j", "power_w", LATENCY, "throughput_per_s"):
            assert shown.estimates[name].mean == pytest.approx(true[name], rel=0.02), name


class TestLandscape:
    @pytest.mark.parametrize("preset", PRESETS)
    def test_grids_have_the_published_size_or_stay_small(self, preset: str) -> None:
        size = space_of(preset).size
        assert size == PUBLISHED_SIZES.get(preset, size) and size <= 10_000

    @pytest.mark.parametrize("spec", SPECS)
    def test_energy_over_the_gpu_clock_is_a_valley(self, spec: str) -> None:
        truth, space = truth_of(spec), space_of(spec)
        clocks = space.knob("gpu.clock_mhz").values
        energy = [truth({**space.default, "gpu.clock_mhz": mhz})["energy_j"] for mhz in clocks]
        lowest = energy.index(min(energy))
        assert 0 < lowest < len(energy) - 1
        assert all(a > b for a, b in pairwise(energy[: lowest + 1]))
        assert all(a <= b for a, b in pairwise(energy[lowest:]))
        assert energy[0] > 1.3 * energy[lowest] and energy[-1] > 1.02 * energy[lowest]

    @pytest.mark.parametrize("spec", SPECS)
    def test_a_fifth_of_slack_allows_a_saving_of_15_to_40_percent(self, spec: str) -> None:
        truth, space = truth_of(spec), space_of(spec)
        base = truth(space.default)
        limit = Limit(LATENCY, "<=", 1.2 * base[LATENCY])
        best = oracle(space, truth, Objective("energy_j"), (limit,))
        assert best is not None
        assert limit.holds(truth(best)[LATENCY])
        assert 0.15 < 1.0 - truth(best)["energy_j"] / base["energy_j"] < 0.40
        clocks = space.knob("gpu.clock_mhz").values
        assert clocks[0] < best["gpu.clock_mhz"] < clocks[-1]  # type: ignore[operator]

    @pytest.mark.parametrize("preset", ["orin", "tx2"])
    @pytest.mark.parametrize("knob", ["gpu.mem_clock_mhz", "cpu.clock_mhz"])
    def test_memory_and_host_clocks_matter_on_a_jetson(self, preset: str, knob: str) -> None:
        truth, space = truth_of(preset), space_of(preset)
        values = [truth({**space.default, knob: value}) for value in space.knob(knob).values]
        energies = [v["energy_j"] for v in values]
        assert energies[-1] > 1.01 * min(energies)
        assert values[0][LATENCY] > 1.1 * values[-1][LATENCY]

    @pytest.mark.parametrize("preset", PRESETS)
    def test_a_larger_batch_takes_longer_and_less_energy(self, preset: str) -> None:
        truth, space = truth_of(preset), space_of(preset)
        rows = [truth({**space.default, "batch_size": b}) for b in space.knob("batch_size").values]
        assert [r[LATENCY] for r in rows] == sorted(r[LATENCY] for r in rows)
        assert [r["energy_j"] for r in rows] == sorted((r["energy_j"] for r in rows), reverse=True)

    @pytest.mark.parametrize("preset", ["a100", "v100", "a40"])
    def test_no_power_limit_is_broken(self, preset: str) -> None:
        truth, space = truth_of(preset), space_of(preset)
        for setting in space.grid():
            assert truth(setting)["power_w"] <= float(setting["gpu.power_limit_w"]) + 1e-3

    def test_reasons_for_missing_knobs_are_given_as_text(self) -> None:
        side = open_device("simulated:a100", seed=0, state_dir=None)
        assert "one memory clock" in side.cannot["gpu.mem_clock_mhz"]


def test_the_oracle_is_the_best_of_those_within_the_limits() -> None:
    space = space_of("orin")
    truth = truth_of("orin")
    settings: list[Setting] = list(space.grid())
    least = min(settings, key=lambda s: truth(s)["energy_j"])
    assert oracle(space, truth, Objective("energy_j")) == least
    most = max(settings, key=lambda s: truth(s)["throughput_per_s"])
    assert oracle(space, truth, Objective("throughput_per_s", "maximize")) == most
    assert oracle(space, truth, Objective("energy_j"), (Limit(LATENCY, "<=", 1e-9),)) is None
