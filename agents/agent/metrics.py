"""Prometheus metrics of an agent. A scrape touches no device; it reads the state of the loops.

Names and base units are those of https://prometheus.io/docs/practices/naming/. Every label's values are
bounded by the agent's configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.agent.observing import DeviceLoop
from agents.holding.journal import Journal
from agents.tuner_link.client import TunerClient

Agents = Callable[[], Mapping[str, DeviceLoop | None]]
"""Return every configured device's loop by id; None for a device that has not been opened yet."""


class AgentCollector(Collector):
    """The metric families of an agent's devices, its spool and its link."""

    def __init__(self, agents: Agents, link: TunerClient, journal: Journal, version: str) -> None:
        self._agents, self._link, self._journal = agents, link, journal
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of a scrape."""
        agents = self._agents()
        opened = [agent for agent in agents.values() if agent is not None]
        about = GaugeMetricFamily(
            "jouletune_agent_build_info", "The agent's release.", labels=("version",)
        )
        about.add_metric((self._version,), 1.0)
        yield about
        is_open = _gauge("device_open", "Whether the configured device answers.")
        restores = _counter("restores", "Times that a device was restored to its original setting.")
        altered = _gauge("device_altered", "Whether a device is not at its original setting.")
        waiting = _gauge("device_waiting", "Files that are restored once their CPU is online.")
        for device, agent in agents.items():
            waiting.add_metric((device,), float(agent.files_waiting if agent else 0))
            is_open.add_metric((device,), float(agent is not None))
            restores.add_metric((device,), float(self._journal.restores[device]))
            altered.add_metric((device,), float(self._journal.left(device)))
        yield is_open
        yield altered
        yield waiting
        yield restores
        yield from _counted(self._link)
        yield from _windows(opened)
        yield from _link(opened)
        yield from _applied(opened)
        yield from _available(opened)


def _counted(link: TunerClient) -> Iterator[Metric]:
    """Yield the metrics that cover all devices of the agent."""
    spool = link.spool
    count, total = spool.size()
    for name, text, value in (
        ("spool_reports", "Reports waiting to be sent to the tuner.", count),
        ("spool_bytes", "Size of the waiting reports in bytes.", total),
    ):
        yield GaugeMetricFamily(f"jouletune_agent_{name}", text, value=float(value))
    for name, text, value in (
        ("reports_dropped", "Windows dropped because the spool was full.", spool.dropped),
        ("reports_refused", "Reports that the tuner refused permanently.", spool.refused),
        ("requests", "Requests to the tuner.", link.requests),
        ("requests_failed", "Requests without a response from the tuner.", link.failed),
    ):
        yield CounterMetricFamily(f"jouletune_agent_{name}", text, value=float(value))


def _windows(agents: Sequence[DeviceLoop]) -> Iterator[Metric]:
    """Yield the totals of every device's windows."""
    windows = _counter("windows", "Windows, by outcome.", "result")
    energy = _counter(
        "energy_joules",
        "Energy measured in windows; nothing is measured between windows.",
        "origin",
    )
    seconds = _counter("window_seconds", "Length of all windows.")
    throttled = _counter("windows_throttled", "Windows in which the device was throttled.")
    for agent in agents:
        device, counts = agent.device.id, agent.counts
        windows.add_metric((device, "measured"), float(counts.measured - counts.spoilt))
        windows.add_metric((device, "spoilt"), float(counts.spoilt))
        windows.add_metric((device, "failed"), float(counts.failed))
        seconds.add_metric((device,), counts.seconds)
        throttled.add_metric((device,), float(counts.throttled))
        for origin, joules in counts.joules.items():
            energy.add_metric((device, str(origin)), joules)
    yield from (windows, energy, seconds, throttled)


def _link(agents: Sequence[DeviceLoop]) -> Iterator[Metric]:
    """Yield the last contact of every device's loop with the tuner, and the age of its lease."""
    contact = _gauge("tuner_heard_timestamp_seconds", "Unix time of the tuner's last response.")
    lease = _gauge("lease_age_seconds", "Seconds since the trial's lease was last renewed.")
    for agent in agents:
        key, standing = (agent.device.id,), agent.standing
        if standing.heard_at is not None:
            contact.add_metric(key, standing.heard_at.timestamp())
        if (trial := standing.lease) is not None:
            lease.add_metric(key, trial.age_s)
    yield from (contact, lease)


def _applied(agents: Sequence[DeviceLoop]) -> Iterator[Metric]:
    """Yield every device's setting, its level and study, and the count of windows that broke a limit."""
    about = _gauge("applied_info", "Source of the device's current setting.", "level", "study")
    knobs = _gauge(
        "applied_knob", "Current value of a knob, in the unit at the end of its name.", "knob"
    )
    words = _gauge(
        "applied_knob_info",
        "Current value of a knob whose values are not numbers.",
        "knob",
        "value",
    )
    broken = _gauge("limit_broken_windows", "Consecutive windows in which the hold broke a limit.")
    for agent in agents:
        device, applied = agent.device.id, agent.standing.applied
        if (count := agent.broken_windows) is not None:
            broken.add_metric((device,), float(count))
        if applied is None:
            continue
        about.add_metric((device, str(applied.level), applied.study), 1.0)
        for knob, value in applied.setting.items():
            if isinstance(value, str):
                words.add_metric((device, knob, value), 1.0)
            else:
                knobs.add_metric((device, knob), float(value))
    yield from (about, knobs, words, broken)


def _available(agents: Sequence[DeviceLoop]) -> Iterator[Metric]:
    """Yield for each sensor and control whether it is available; `jouletune doctor` has the reasons."""
    gauge = _gauge("available", "1: measured on this host; 0: not available on this host.", "name")
    for agent in agents:
        names = {metric.name: 1.0 for metric in agent.device.metrics}
        for name, available in {**dict.fromkeys(agent.device.cannot, 0.0), **names}.items():
            gauge.add_metric((agent.device.id, name), available)
    yield gauge


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    """Return an empty family of a gauge with a label `device` and these."""
    return GaugeMetricFamily(f"jouletune_agent_{name}", text, labels=("device", *labels))


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    """Return an empty family of a counter with a label `device` and these."""
    return CounterMetricFamily(f"jouletune_agent_{name}", text, labels=("device", *labels))
