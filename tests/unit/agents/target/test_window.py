from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.target.side import HOST_CPU, Side, SignalSample
from agents.target.target import Target
from agents.target.window import SIZES, TargetWindow, Usage
from tests.errors import raised
from tests.fakes import FakeMeter, Rig, steady
from tuner.core import (
    Estimate,
    MeasurementError,
    Metric,
    Origin,
    OverDevices,
    Quantity,
    Reading,
    Scope,
    Scrapes,
    Signal,
    Space,
    ratio_estimate,
)

ENERGY = Metric("energy_j", Origin.SIMULATED, Scope.BOARD)


def run(rig: Rig, reads: int = 10, step_s: float = 1.0) -> TargetWindow:
    window = TargetWindow(rig.target, rig.time, Usage(2, rig.own_cpu_s))
    for _ in range(reads):
        rig.time.sleep(step_s)
        window.read()
    window.stop()
    return window


def test_totals_become_metrics_per_item_and_per_second(tmp_path: Path) -> None:
    window = run(Rig(tmp_path, shows=steady(watts=100.0, per_s=50.0, cpu_share=0.5)))
    estimates = window.estimates()
    assert estimates["energy_j"].mean == pytest.approx(2.0)
    assert estimates["power_w"].mean == pytest.approx(100.0)
    assert estimates["cpu_time_ms"].mean == pytest.approx(10.0)
    assert estimates["throughput_per_s"].mean == pytest.approx(50.0)
    assert estimates["energy_j"].origin is Origin.SIMULATED
    assert estimates["cpu_time_ms"].scope is Scope.PROCESS


def test_unlisted_combinations_are_not_derived(tmp_path: Path) -> None:
    window = run(Rig(tmp_path, listed=("latency_p99_ms",)))
    assert "energy_j" not in window.estimates()


def test_a_value_finished_by_a_meter_is_kept(tmp_path: Path) -> None:
    own = Estimate.of_mean(3.0, 0.5, 7)

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        return {**steady()(began, now), "power_w": own}

    assert run(Rig(tmp_path, shows=shows)).estimates()["power_w"] == own


def test_the_standard_error_covers_the_truth(tmp_path: Path) -> None:
    """Noisy batches: the one-sided 95 % bound must hold in about 95 of 100 windows."""
    rng = random.Random(1)
    kept = 0
    for _ in range(400):
        items = [rng.randint(80, 120) for _ in range(10)]
        steps = [(2.0 * n * rng.gauss(1.0, 0.1), float(n)) for n in items]
        estimate = ratio_estimate(steps, 1.0, ENERGY)
        assert estimate is not None
        kept += estimate.high >= 2.0
    assert 0.92 <= kept / 400 <= 0.975


def test_the_error_at_a_rate_is_the_part_that_the_rate_does_not_explain() -> None:
    """100 W plus 2 J per item at changing rates: only the rate changes the energy per item."""
    rng = random.Random(1)
    kept = 0
    for _ in range(400):
        items = [rng.randint(20, 180) for _ in range(10)]
        steps = [(100.0 * 10.0 + 2.0 * n + rng.gauss(0.0, 20.0), float(n)) for n in items]
        plain, at_rate = (ratio_estimate(steps, 1.0, ENERGY, s) for s in ((), [10.0] * 10))
        assert plain is not None and at_rate is not None
        assert at_rate.mean == plain.mean and at_rate.stderr < 0.3 * plain.stderr
        kept += at_rate.high >= 2.0 + 100.0 * 100.0 / sum(items)
    assert 0.92 <= kept / 400 <= 0.98


def test_requests_at_the_ends_of_a_followed_window_are_an_error(tmp_path: Path) -> None:
    def window(arrivals_per_s: float) -> Estimate:
        rig = Rig(tmp_path, shows=steady(watts=100.0, per_s=50.0))
        rig.signals = (Arrivals(rig, arrivals_per_s),)
        opened = TargetWindow(rig.target, rig.time, Usage(2, rig.own_cpu_s), follows=Arrivals.NAME)
        for _ in range(10):
            rig.time.sleep(1.0)
            opened.read()
        return opened.estimates()["energy_j"]

    by_size = SIZES / math.sqrt(500.0)
    assert window(50.0).stderr == pytest.approx(by_size * window(50.0).mean)
    assert window(55.0).stderr == pytest.approx(math.hypot(0.1, by_size) * window(55.0).mean)


class Arrivals:
    """A rate of arrivals."""

    NAME = "arrival_rate_per_s"
    signal = Signal(NAME, "1/s")

    def __init__(self, rig: Rig, per_s: float) -> None:
        self.rig, self.per_s = rig, per_s

    def read(self) -> SignalSample:
        return SignalSample(integral=self.per_s * self.rig.time.monotonic())


def test_a_ratio_of_few_batches_is_not_reported() -> None:
    assert ratio_estimate([(1.0, 1.0), (1.0, 1.0)], 1.0, ENERGY) is None
    assert ratio_estimate([(1.0, 0.0)] * 5, 1.0, ENERGY) is None


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.floats(0.001, 1e6)), min_size=3, max_size=40))
def test_a_ratio_is_always_a_sound_estimate(steps: list[tuple[float, float]]) -> None:
    estimate = ratio_estimate(steps, 1.0, ENERGY)
    assert estimate is not None
    assert estimate.low <= estimate.mean <= estimate.high
    assert estimate.n == len(steps)


def test_a_counter_that_runs_backwards_gives_no_measurement(tmp_path: Path) -> None:
    rig = Rig(tmp_path, shows=lambda began, now: {"energy_j": 100.0 - (now - began)})
    with raised(MeasurementError, "energy_j"):
        run(rig)


class PerWorker:
    """A meter of a service whose workers count apart, as its last comparison shows."""

    def __init__(self) -> None:
        self.counts = [28.0, 8.0]

    def start(self) -> PerWorker:
        return self

    def read(self) -> Reading:
        return Reading({"items": self.counts.pop(0)})

    def stop(self) -> Reading:
        return Reading(facts=(Scrapes(url="u", started=frozenset({1.0, 2.0})),))


def test_a_total_that_runs_back_is_explained_by_the_witness_that_has_the_cause(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.work_meter = PerWorker()  # type: ignore[assignment]
    with raised(MeasurementError, "2 processes", "PROMETHEUS_MULTIPROC_DIR"):
        run(rig)


def test_foreign_use_is_the_rest_besides_workload_and_agent(tmp_path: Path) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        return {**steady(cpu_share=1.0)(began, now), "busy_s": 1.7 * (now - began)}

    rig = Rig(tmp_path, shows=shows)
    rig.own_cpu_s = lambda: 0.1 * rig.time.monotonic()
    window = run(rig)
    assert window.foreign() == pytest.approx((1.7 - 1.0 - 0.1) / 2.0)
    assert window.load().utilisation == pytest.approx(0.85)


def test_the_load_generator_is_not_foreign(tmp_path: Path) -> None:
    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        seconds = now - began
        used = {"busy_s": 1.7 * seconds, "load_cpu_s": 0.4 * seconds}
        return {**steady(cpu_share=1.0)(began, now), **used}

    assert run(Rig(tmp_path, shows=shows)).foreign() == pytest.approx((1.7 - 1.0 - 0.4) / 2.0)


@pytest.mark.parametrize(
    ("covered", "watts"), [({"gpu"}, 380.0), ({"gpu", HOST_CPU}, 300.0)], ids=["gpu", "module"]
)
def test_a_cpu_whose_joules_the_module_counts_is_not_added(
    tmp_path: Path, covered: set[str], watts: float
) -> None:
    # zeus PR 172: a GH200's energy is that of the module, with its CPU.
    rig = Rig(tmp_path)
    gpu = replace(
        rig.target.devices[0],
        meter=FakeMeter(rig.time, steady(watts=300.0)),
        energy_of=frozenset(covered),
    )
    cpu = replace(
        gpu,
        name="cpu",
        meter=FakeMeter(rig.time, steady(watts=80.0)),
        energy_of=frozenset({HOST_CPU}),
        space=Space(()),
    )
    target = Target((gpu, cpu))
    window = TargetWindow(target, rig.time, Usage(2, rig.own_cpu_s))
    for _ in range(10):
        rig.time.sleep(1.0)
        window.read()
    window.stop()
    assert window.estimates()["power_w"].mean == pytest.approx(watts)
    assert ("cpu is part of it and not added" in target.source("power_w")) is (watts == 300.0)


@pytest.mark.parametrize(("costs", "cost"), [((3.0, 1.0), 0.08), ((3.0, None), None)])
def test_a_declared_total_is_per_item_and_summed_over_the_sides_that_list_it(
    tmp_path: Path, costs: tuple[float | None, ...], cost: float | None
) -> None:
    rig = Rig(tmp_path)
    quantity = Quantity("EUR", over_devices=OverDevices.SUM)

    def costing(rate: float | None, name: str) -> Side:
        def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
            return {
                **steady()(began, now),
                **({} if rate is None else {"cost": rate * (now - began)}),
            }

        return replace(
            rig.target.devices[0],
            name=name,
            metrics=(Metric("cost", quantity=quantity),),
            meter=FakeMeter(rig.time, shows),
            space=Space(()),
        )

    target = Target(tuple(costing(rate, f"d{n}") for n, rate in enumerate(costs)))
    window = TargetWindow(target, rig.time, Usage(2, rig.own_cpu_s))
    for _ in range(10):
        rig.time.sleep(1.0)
        window.read()
    window.stop()
    shown = window.estimates().get("cost")
    assert (shown and shown.mean) == (cost and pytest.approx(cost))


def test_the_reason_of_throttling_is_named(tmp_path: Path) -> None:
    shows = {"throttled_power_s": 0.5, "throttled_heat_s": 0.0}
    assert run(Rig(tmp_path, shows=lambda began, now: shows)).throttled() == ("power",)


def test_a_meter_that_does_not_start_closes_the_other(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.work_meter.fails = MeasurementError("no answer")
    with pytest.raises(MeasurementError, match="no answer"):
        TargetWindow(rig.target, rig.time, Usage(2, rig.own_cpu_s))
    assert rig.meter.open == 0


class Gone:
    """A signal that cannot be read."""

    signal = Signal("waiting")

    def read(self) -> SignalSample:
        raise MeasurementError("no answer")


def test_a_signal_that_cannot_be_read_closes_the_meters(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.signals = (Gone(),)
    with pytest.raises(MeasurementError, match="no answer"):
        TargetWindow(rig.target, rig.time, Usage(2, rig.own_cpu_s), follows="waiting")
    assert rig.meter.open == 0


class Level:
    """A signal that stays at a level."""

    def __init__(self, name: str, level: float) -> None:
        self.signal, self._level = Signal(name), level

    def read(self) -> SignalSample:
        return SignalSample(self._level)


def test_a_window_reports_the_signal_that_it_follows(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.signals = (Level("waiting", 3.0), Level("price", 1.0))
    window = TargetWindow(rig.target, rig.time, Usage(2, rig.own_cpu_s), follows="waiting")
    rig.time.sleep(1.0)
    window.read()
    window.stop()
    context = window.context()
    assert context["waiting"] == 3.0
    assert "price" not in context


def test_a_nan_never_becomes_an_estimate(tmp_path: Path) -> None:
    rig = Rig(tmp_path, shows=lambda began, now: {"latency_p99_ms": Estimate(math.nan)})
    with pytest.raises(MeasurementError):
        run(rig)


@pytest.mark.parametrize(("workload", "share"), [(True, 0.0), (False, 0.85)])
def test_a_workload_without_cpu_time_does_not_count_as_others(
    tmp_path: Path, workload: bool, share: float
) -> None:
    rig = Rig(tmp_path, shows=lambda began, now: {"busy_s": 1.7 * (now - began)}, workload=workload)
    assert run(rig).foreign() == pytest.approx(share)


def test_a_window_within_which_the_host_was_suspended_is_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path, shows=steady(watts=100.0, per_s=50.0, cpu_share=0.5))
    away = [3.0]
    usage = Usage(2, rig.own_cpu_s, lambda: away[-1])
    window = TargetWindow(rig.target, rig.time, usage)
    rig.time.sleep(1.0)
    window.read()
    away.append(63.0)
    rig.time.sleep(60.0)
    with pytest.raises(MeasurementError, match="suspended for 60 s"):
        window.read()
    window.discard()
