"""Values the tests are made of: one small space, windows, studies, and a clock one can turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tuner.core import (
    Applied,
    Constraint,
    Device,
    Estimate,
    Knob,
    Level,
    Limit,
    Load,
    Measurement,
    Metric,
    Objective,
    Origin,
    Outcome,
    Part,
    Phase,
    Setting,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
)

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLOCKS = (400, 600, 800, 1000)
SPACE = Space(
    (Knob("gpu.clock_mhz", CLOCKS, 1000), Knob("batch_size", (1, 2, 4), 1, Part.WORKLOAD))
)
METRICS = tuple(
    Metric(name, Origin.SIMULATED)
    for name in ("energy_j", "latency_p99_ms", "power_w", "throughput_per_s")
)


@dataclass
class Time:
    """Wall time and monotonic time that only move when told."""

    at: datetime = START
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - START).total_seconds()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)


def setting(clock: int = 1000, batch: int = 1) -> Setting:
    return {"gpu.clock_mhz": clock, "batch_size": batch}


def window(
    energy_j: float = 10.0,
    latency_p99_ms: float = 100.0,
    *,
    relative: float = 0.01,
    rate: float = 50.0,
    seconds: float = 10.0,
    extra: Mapping[str, Estimate] | None = None,
) -> Measurement:
    """Return a measured window; `relative` is the relative standard error of both metrics."""
    figures = {
        "energy_j": Estimate.of_mean(energy_j, relative * energy_j, 10),
        "latency_p99_ms": Estimate.of_mean(latency_p99_ms, relative * latency_p99_ms, 500),
        "power_w": Estimate.of_mean(energy_j * rate, 0.01 * energy_j * rate, 10),
        "throughput_per_s": Estimate.of_mean(rate, 0.01 * rate, 10),
    }
    return Measurement(
        estimates={**figures, **(extra or {})},
        started_at=START,
        seconds=seconds,
        load=Load(arrival_rate_per_s=rate, completed=int(rate * seconds)),
    )


def completed(energy_j: float = 10.0, latency_p99_ms: float = 100.0) -> Outcome:
    return Outcome(state=TrialState.COMPLETED, measurement=window(energy_j, latency_p99_ms))


def trial(
    number: int,
    at: Setting | None = None,
    measurement: Measurement | None = None,
    *,
    phase: Phase = Phase.TUNING,
    state: TrialState = TrialState.COMPLETED,
    broke: Limit | None = None,
    reason: str = "",
) -> Trial:
    found = measurement if measurement is not None or not state.evidence else window()
    return Trial(
        number=number,
        setting=at or setting(),
        phase=phase,
        state=state,
        started_at=START,
        ended_at=START if state.final else None,
        measurement=found,
        broke=broke,
        reason=reason,
    )


def study(
    phase: Phase = Phase.TUNING,
    constraints: tuple[str, ...] = ("latency_p99_ms <= 1.2x baseline",),
    devices: tuple[str, ...] = ("sim",),
    **changes: object,
) -> Study:
    fields: dict[str, object] = {
        "id": "s1",
        "devices": devices,
        "workload": "inference",
        "space": SPACE,
        "objective": Objective("energy_j"),
        "constraints": tuple(Constraint.parse(c) for c in constraints),
        "policy": "scripted",
        "terms": Terms(trials=4, window_s=10.0, max_window_s=30.0),
        "phase": phase,
        "created_at": START,
    }
    return Study(**{**fields, **changes})  # type: ignore[arg-type]


def device(name: str = "sim", **changes: object) -> Device:
    fields: dict[str, object] = {
        "id": name,
        "kind": "simulated",
        "board": "A100",
        "driver": "1",
        "agent": "host",
        "workload": "inference",
        "workload_version": "1",
        "space": SPACE,
        "metrics": METRICS,
        "seen_at": START,
    }
    return Device(**{**fields, **changes})  # type: ignore[arg-type]


def applied(name: str = "sim", level: Level = Level.ORIGINAL, at: Setting | None = None) -> Applied:
    return Applied(device=name, setting=at or setting(), level=level, at=START)
