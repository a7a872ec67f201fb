"""Power between requests: a card that draws 80 W with a context and 20 W without (ollama issue 8591)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from agents.target.idle import idle_power
from agents.target.observe import Ask
from agents.target.side import IdleState, IdleWorkload
from agents.target.target import Target
from tests.fakes import FakeMeter, Rig
from tuner.core import Metric, Setting, TrialState

DELAY = "sleep_idle_seconds"
WATTS = {IdleState.BUSY: 300.0, IdleState.LOADED: 80.0, IdleState.UNLOADED: 20.0}
ASK = Ask(metrics=("energy_j",), window_s=10.0, max_window_s=30.0, idle=True)


@dataclass
class ContextCard:
    """A card whose context is unloaded some seconds after the last request; never without a delay."""

    rig: Rig
    delay_s: float = float("inf")
    busy: bool = False
    last_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.last_s = self.rig.time.monotonic()

    def look(self) -> IdleState:
        if self.busy:
            return IdleState.BUSY
        idle_s = self.rig.time.monotonic() - self.last_s
        return IdleState.UNLOADED if idle_s >= self.delay_s else IdleState.LOADED

    def shows(self, began: float, now: float) -> Mapping[str, float]:
        unloaded = max(0.0, now - max(began, self.last_s + self.delay_s))
        if self.busy:
            return {
                "energy_j": WATTS[IdleState.BUSY] * (now - began),
                "items": 50.0 * (now - began),
            }
        loaded = now - began - unloaded
        watts = WATTS[IdleState.LOADED], WATTS[IdleState.UNLOADED]
        return {"energy_j": watts[0] * loaded + watts[1] * unloaded}

    def target(self) -> Target:
        (device,), work = self.rig.target.devices, self.rig.target.workload
        assert work is not None
        meter = FakeMeter(self.rig.time, self.shows)
        device = replace(device, metrics=(*device.metrics, Metric("power_w")), meter=meter)
        return Target((device,), replace(work, idle=IdleWorkload(self.look, DELAY)))


def measured(card: ContextCard, setting: Setting) -> dict[str, float]:
    rig = card.rig
    found = idle_power(card.target(), setting, rig.time, rig.bench.usage, rig.time.sleep)
    return {name: estimate.mean for name, estimate in found.items()}


def test_the_power_with_the_model_in_memory_is_measured(rig: Rig) -> None:
    assert measured(ContextCard(rig), {}) == {"idle_w": pytest.approx(80.0)}


def test_an_unload_is_waited_for_and_believed_by_the_state_of_the_process(rig: Rig) -> None:
    both = {"idle_w": pytest.approx(80.0), "idle_unloaded_w": pytest.approx(20.0)}
    assert measured(ContextCard(rig, delay_s=30.0), {DELAY: 30}) == both
    began = rig.time.monotonic()
    assert measured(ContextCard(rig), {DELAY: 30}).keys() == {"idle_w"}  # it never unloads
    assert rig.time.monotonic() - began < 60.0


def test_an_unload_delay_that_is_off_or_long_is_not_awaited(rig: Rig) -> None:
    for delay in (-1, 3600, "30"):
        began = rig.time.monotonic()
        assert measured(ContextCard(rig, delay_s=30.0), {DELAY: delay}).keys() == {"idle_w"}
        assert rig.time.monotonic() - began < 5.0


def test_nothing_is_measured_while_requests_arrive_or_the_state_changes(rig: Rig) -> None:
    assert measured(ContextCard(rig, busy=True), {}) == {}
    assert measured(ContextCard(rig, delay_s=1.0), {}) == {}


def test_without_a_meter_there_is_no_figure_but_a_reason(rig: Rig) -> None:
    target = ContextCard(rig).target()
    (device,) = target.devices
    blind = Target((replace(device, metrics=()),), target.workload)
    assert idle_power(blind, {}, rig.time, rig.bench.usage, rig.time.sleep) == {}
    assert "energy meter" in blind.cannot["idle_w"]
    assert "idle_w" not in target.cannot and "idle_w" in target.quantities


def test_a_trial_records_it_beside_the_metrics_under_load(rig: Rig) -> None:
    card = ContextCard(rig)
    bench = replace(rig.bench, target=card.target())
    work = FakeMeter(rig.time, lambda began, now: {"items": 50.0 * (now - began)})
    assert bench.target.workload is not None
    loaded = replace(bench.target.workload, meter=work)
    bench = replace(bench, target=Target(bench.target.devices, loaded))
    outcome = bench.trial({"gpu.clock_mhz": 400, "batch_size": 4}, ASK, lambda: None, "trial 1")
    assert outcome.state is TrialState.COMPLETED and outcome.measurement is not None
    assert outcome.measurement.estimates["idle_w"].mean == pytest.approx(80.0)
