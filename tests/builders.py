"""Builders of test values: a small space, windows, studies, and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from jouletune_bench.replay.names import roles_of
from tuner.core import (
    Applied,
    Bill,
    Constraint,
    Context,
    Cost,
    Device,
    Done,
    Estimate,
    InvalidInput,
    Knob,
    Level,
    Limit,
    Load,
    Measurement,
    Metric,
    MetricSample,
    Objective,
    Origin,
    Outcome,
    Part,
    Past,
    PeriodSaving,
    Phase,
    Plan,
    Policy,
    Setting,
    Space,
    Study,
    Suggestion,
    Terms,
    Trial,
    TrialState,
    Try,
    Value,
    setting_key,
)

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLOCKS = (400, 600, 800, 1000)


def knob(
    name: str,
    values: tuple[Value, ...],
    default: Value,
    part: Part = Part.DEVICE,
    cost: Cost = Cost(),  # noqa: B008 - frozen
) -> Knob:
    """Return a knob with the role that its name suggests."""
    return Knob(name, values, default, part, cost, roles_of([name])[name])


SPACE = Space(
    (knob("gpu.clock_mhz", CLOCKS, 1000), knob("batch_size", (1, 2, 4), 1, Part.WORKLOAD))
)
METRICS = tuple(
    Metric(name, Origin.SIMULATED)
    for name in ("energy_j", "latency_p99_ms", "power_w", "throughput_per_s")
)


@dataclass
class Time:
    """Wall time and monotonic time that a test moves; `stepped` is the lead of the wall clock."""

    at: datetime = START
    stepped: timedelta = timedelta()
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - START - self.stepped).total_seconds()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)

    def step(self, by: timedelta) -> None:
        """Set the wall clock; no time passes."""
        self.at += by
        self.stepped += by


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
    context: Context | None = None,
) -> Measurement:
    """Return a measured window; `relative` is the relative standard error of both metrics.

    Its load is the rate unless `context` gives another.
    """
    figures = {
        "energy_j": Estimate.of_mean(energy_j, relative * energy_j, 10),
        "latency_p99_ms": Estimate.of_mean(latency_p99_ms, relative * latency_p99_ms, 500),
        "power_w": Estimate.of_mean(energy_j * rate, 0.01 * energy_j * rate, 10),
        "throughput_per_s": Estimate.of_mean(rate, 0.01 * rate, 10),
    }
    context = {"arrival_rate_per_s": rate} if context is None else context
    return window_of({**figures, **(extra or {})}, context, int(rate * seconds), seconds)


def window_of(
    shown: Mapping[str, Estimate], context: Context, items: int = 1000, seconds: float = 10.0
) -> Measurement:
    """Return a measured window with these metrics."""
    load = Load(completed=items)
    return Measurement(
        estimates=shown, started_at=START, seconds=seconds, load=load, context=context
    )


def metric_sample(minute: float, energy_j: float, relative: float = 0.01) -> MetricSample:
    """Return the energy of a held window at 600 MHz: 50 items per second for 10 s."""
    return MetricSample(
        started_at=START + timedelta(minutes=minute),
        seconds=10.0,
        setting=setting_key(setting(600)),
        context={"arrival_rate_per_s": 50.0},
        completed=500,
        mean=energy_j,
        stderr=relative * energy_j,
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
    context: Context | None = None,
) -> Trial:
    measured = measurement if measurement is not None or not state.evidence else window()
    return Trial(
        number=number,
        setting=at or setting(),
        phase=phase,
        context=context or {},
        state=state,
        started_at=START,
        ended_at=START if state.final else None,
        measurement=measured,
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


def surface(at: Setting) -> Measurement:
    """Return a window on a smooth surface: slower clocks save until idle energy outweighs the saving."""
    clock, batch = float(at["gpu.clock_mhz"]) / 1000.0, float(at["batch_size"])
    energy_j = (2.0 + 2.0 / clock + 6.0 * clock**2) / batch**0.3
    return window(energy_j, 100.0 * batch**0.2 / clock**0.4)


def past(at: Study, trials: Sequence[Trial]) -> Past:
    return Past(study=at, trials=tuple(trials))


def baseline(at: Study, seen: Measurement | None = None) -> list[Trial]:
    """Return the two windows of a study's baseline."""
    measured = seen or surface(at.baseline)
    return [trial(n, at.baseline, measured, phase=Phase.BASELINE) for n in (1, 2)]


def asked(count: int, **changes: Any) -> Study:  # noqa: ANN401
    """Return a study of this many trials."""
    return study(terms=Terms(trials=count, window_s=10.0, max_window_s=30.0), **changes)


class Descend:
    """A policy that tries 800 and 600 MHz, then proposes the latter."""

    def suggest(self, past: Past) -> Suggestion:
        tried = sum(t.phase is Phase.TUNING for t in past.trials)
        if tried < 2:
            return Try(setting((800, 600)[tried]), f"step {tried + 1}")
        return Done(Plan.single(setting(600)), "that is low enough")


def policies(name: str) -> Policy:
    """Return the only policy: `scripted`."""
    if name != "scripted":
        raise InvalidInput(f"there is no policy {name!r}", hint="known: scripted")
    return Descend()


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


def saved(bill: Bill) -> PeriodSaving:
    """Return the saving by all holding of a bill that has one."""
    assert bill.whole is not None
    return bill.whole
