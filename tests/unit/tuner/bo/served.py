"""A made-up server under M/D/1, whose load a study follows."""

from __future__ import annotations

from tests.builders import knob, study, trial, window
from tuner.core import (
    Estimate,
    Measurement,
    Phase,
    Setting,
    Signal,
    Space,
    Study,
    Terms,
    Trial,
    peak_name,
)

BY = "arrival_rate_per_s"
CLOCKS = tuple(range(500, 1501, 100))
SPACE = Space((knob("gpu.clock_mhz", CLOCKS, 1500),))
LIMIT_MS = 60.0
PEAK = 1.05


def truth(setting: Setting, load: float) -> tuple[float, float]:
    """Return joules an item and p99 in ms, as a queue of one server has them."""
    clock = float(setting["gpu.clock_mhz"]) / 1500.0
    service_s = 0.010 * (0.8 / clock + 0.2)
    busy = min(load * service_s, 0.985)
    power_w = 40.0 + 30.0 * clock + busy * 250.0 * clock**2.2
    return power_w / min(load, 1.0 / service_s), 1000.0 * service_s * (
        1.0 + 2.3 * busy / (1 - busy)
    )


def shown(setting: Setting, load: float) -> Measurement:
    energy_j, p99_ms = truth(setting, load)
    tail = {"latency_p99_ms": Estimate.of_mean(p99_ms, 0.02 * p99_ms, 500)}
    context = {BY: load, peak_name(BY): PEAK * load}
    return window(energy_j, p99_ms, rate=load, extra=tail, context=context)


def asked(trials: int = 40, *, askable: bool = False, limit: str = f"<= {LIMIT_MS}") -> Study:
    return study(
        constraints=(f"latency_p99_ms {limit}",),
        space=SPACE,
        signals=(Signal(BY, "1/s", askable),),
        terms=Terms(trials=trials, plan_by=BY),
    )


def at_baseline(load: float = 30.0) -> list[Trial]:
    return [
        trial(n, SPACE.default, shown(SPACE.default, load), phase=Phase.BASELINE) for n in (1, 2)
    ]
