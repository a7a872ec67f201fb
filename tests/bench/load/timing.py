"""CPU seconds of a suggestion: 3,000 settings, 40 trials."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from statistics import median

from tuner.bo.explore import RULES
from tuner.bo.suggest import suggest
from tuner.core import (
    Constraint,
    Estimate,
    Knob,
    Measurement,
    Objective,
    Past,
    Phase,
    Role,
    Setting,
    Signal,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
    setting_key,
)
from tuner.core import Load as WindowLoad

BY = "arrival_rate_per_s"
LOADS = (22.0,)
TRIALS, REPEATS = 40, 9
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPACE = Space(
    (
        Knob("gpu.clock_mhz", tuple(range(510, 1980, 60)), 1950, role=Role.CORE_CLOCK),
        Knob("gpu.memory_mhz", (800, 1200, 1600, 2000), 2000, role=Role.MEMORY_CLOCK),
        Knob("cpu.clock_mhz", tuple(range(1000, 2500, 300)), 2200, role=Role.HOST_CLOCK),
        Knob("server.batch", (1, 2, 4, 8, 16, 32), 8, role=Role.BATCH),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionTime:
    """CPU seconds of suggestions with the same trials but one: the median and the largest."""

    settings: int
    loads: int
    trials: int
    median_s: float
    worst_s: float


def suggestion_times() -> tuple[SuggestionTime, ...]:
    """Measure a suggestion; what a study computes once is not counted."""
    return (_timed(LOADS),)


def _timed(loads: Sequence[float]) -> SuggestionTime:
    study = _study()
    trials = _trials(loads)
    took = []
    for dropped in range(REPEATS + 1):
        kept = [t for n, t in enumerate(trials) if n < 2 * len(loads) or n != len(trials) - dropped]
        past = Past(study=study, trials=tuple(kept), context={BY: loads[-1]})
        began = time.process_time()
        suggest(past, without=RULES.keys())
        took.append(time.process_time() - began)
    return SuggestionTime(
        settings=study.space.size,
        loads=len(loads),
        trials=len(trials),
        median_s=median(took[1:]),
        worst_s=max(took[1:]),
    )


def _study() -> Study:
    return Study(
        id="timing",
        devices=("server",),
        workload="server",
        space=SPACE,
        objective=Objective("energy_j"),
        signals=(Signal(BY, "1/s", True),),
        constraints=(Constraint.parse("latency_p99_ms <= 120"),),
        policy="polythrottle",
        seed=1,
        terms=Terms(trials=4 * TRIALS, plan_by=BY),
        created_at=NOW,
    )


def _trials(loads: Sequence[float]) -> list[Trial]:
    """Return 40 trials: the baseline at each load, then settings at random."""
    rng = Random("timing")
    default = SPACE.default
    tried: list[tuple[Setting, float]] = [(default, load) for load in loads for _ in (0, 1)]
    every = itertools.cycle(loads)
    while len(tried) < TRIALS:
        setting = {
            k.name: rng.choice(
                k.values[len(k.values) // 2 :] if k.role is not Role.BATCH else k.values
            )
            for k in SPACE.knobs
        }
        if setting_key(setting) != setting_key(default):
            tried.append((setting, next(every)))
    return [
        Trial(
            number=n + 1,
            setting=setting,
            phase=Phase.BASELINE if n < 2 else Phase.TUNING,
            started_at=NOW,
            context={} if n < 2 else {BY: load},
            state=TrialState.COMPLETED,
            measurement=_measured(setting, load, rng),
        )
        for n, (setting, load) in enumerate(tried)
    ]


def _measured(setting: Setting, load: float, rng: Random) -> Measurement:
    """Return a queue of one server's window."""
    core = float(setting["gpu.clock_mhz"]) / 1950.0
    memory = float(setting.get("gpu.memory_mhz", 2000)) / 2000.0
    service_s = 0.012 * (0.6 / core + 0.3 / memory + 0.1)
    busy = min(load * service_s, 0.97)
    watts = 60.0 + 20.0 * memory + busy * 240.0 * core**2.0
    p99_ms = 1000.0 * service_s * (1.0 + 2.3 * busy / (1.0 - busy)) * rng.gauss(1.0, 0.02)
    energy_j = watts / load * rng.gauss(1.0, 0.01)
    return Measurement(
        estimates={
            "energy_j": Estimate.of_mean(energy_j, 0.01 * energy_j, 10),
            "latency_p99_ms": Estimate.of_mean(p99_ms, 0.02 * p99_ms, 500),
            "power_w": Estimate.of_mean(energy_j * load, 0.01 * energy_j * load, 10),
            "throughput_per_s": Estimate.of_mean(load, 0.01 * load, 10),
        },
        started_at=NOW,
        seconds=10.0,
        load=WindowLoad(completed=int(10.0 * load)),
        context={BY: load},
    )
