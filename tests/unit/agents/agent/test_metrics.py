"""An agent's metrics for Prometheus: from its loop, without access to the device."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from agents.agent.loop import DeviceAgent
from agents.agent.metrics import AgentCollector
from agents.tuner_link.client import TunerClient
from tests.fakes import Rig
from tests.unit.agents.agent.orders import HELD, cut, hold, trial
from tuner.core import ActuationError, Origin

DEVICE = "fake@host"


class Told:
    """An agent's metrics by name."""

    def __init__(
        self, rig: Rig, agent: DeviceAgent | None, link: TunerClient | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        agents = {DEVICE: agent}
        self.registry.register(AgentCollector(lambda: agents, link or rig.link, rig.journal, "1"))

    def __call__(self, sample: str, /, device: str = DEVICE, **labels: str) -> float | None:
        """Return a sample of the device; of the whole agent if the device is empty."""
        named = {"device": device, **labels} if device else labels
        return self.registry.get_sample_value(f"jouletune_agent_{sample}", named)


def test_a_trial_is_counted_with_its_energy_and_its_restore(rig: Rig) -> None:
    agent = rig.agent()
    metric = Told(rig, agent)
    rig.tuner.orders = [trial()]
    agent.step()
    assert metric("windows_total", result="measured") == 1.0
    joules = metric("energy_joules_total", origin="simulated")
    seconds = metric("window_seconds_total")
    assert joules is not None
    assert seconds is not None
    assert joules == pytest.approx(agent.counts.joules[Origin.SIMULATED])
    assert seconds > 9.0
    assert metric("restores_total") == 1.0
    assert metric("device_altered") == 0.0
    assert metric("tuner_heard_timestamp_seconds") is not None
    assert metric("lease_age_seconds") is None, "the trial has ended"


def test_a_lease_ages_while_its_trial_runs(rig: Rig) -> None:
    agent = rig.agent()
    metric = Told(rig, agent)
    ages: list[float | None] = []
    levels: list[float | None] = []
    shows = rig.shows

    def looked(began: float, now: float) -> object:
        ages.append(metric("lease_age_seconds"))
        levels.append(metric("applied_info", level="trial", study="s1"))
        return shows(began, now)

    rig.shows = looked  # type: ignore[assignment]
    rig.tuner.orders = [trial()]
    agent.step()
    assert levels
    assert set(levels) == {1.0}
    measured = [age for age in ages if age is not None]
    assert len(measured) == len(ages)
    assert measured[-1] > measured[0]


def test_the_held_setting_is_reported_without_access_to_the_device(rig: Rig) -> None:
    agent = rig.agent()
    metric = Told(rig, agent)
    rig.tuner.orders = [hold(), hold()]
    agent.step()
    agent.step()

    def no_touch() -> dict[str, object]:
        raise ActuationError("a scrape touched the device")

    rig.device.read = no_touch  # type: ignore[method-assign,assignment]
    assert metric("applied_info", level="hold", study="s1") == 1.0
    assert metric("device_altered") == 1.0
    for knob, value in HELD.items():
        assert metric("applied_knob", knob=knob) == value
    assert metric("limit_broken_windows") is not None


def test_an_unreachable_tuner_shows_in_failed_requests_and_waiting_reports(rig: Rig) -> None:
    agent = rig.agent()
    metric = Told(rig, agent, agent.around.link)
    assert metric("spool_reports", device="") == 0.0
    rig.tuner.orders = [trial()]
    agent.step()
    heard, requests = metric("tuner_heard_timestamp_seconds"), metric("requests_total", device="")
    assert heard is not None
    assert requests is not None
    assert metric("requests_failed_total", device="") == 0.0
    rig.tuner.broken = cut
    agent.step()
    assert metric("spool_reports", device="") == 1.0
    total = metric("spool_bytes", device="")
    assert total is not None
    assert total > 100.0
    assert metric("requests_total", device="") == requests + 1.0
    assert metric("requests_failed_total", device="") == 1.0
    assert metric("tuner_heard_timestamp_seconds") == heard


def test_a_silent_device_is_reported_as_not_open(rig: Rig) -> None:
    metric = Told(rig, None)
    assert metric("device_open") == 0.0
    assert metric("windows_total", result="measured") is None


def test_missing_sensors_are_reported_beside_the_measured_ones(rig: Rig) -> None:
    metric = Told(rig, rig.agent())
    assert metric("available", name="energy_j") == 1.0
    assert metric("available", name="fan_rpm") == 0.0
