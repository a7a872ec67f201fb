"""Finished studies of hosts, with the measured curves of real GPUs, which give their watts a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from db import open_store
from tests.builders import START, knob, study, window
from tuner.core import Estimate, Outcome, Phase, Space, TrialState

LIMIT = "gpu.power_limit_w"
Curve = Sequence[tuple[float, float]]


def give_curves(url: str, devices: Sequence[str], curves: Sequence[Curve]) -> int:
    """Store a finished study with the next curve for each device; return the number of such devices."""
    store = open_store(url)
    for number, device in enumerate(devices if curves else ()):
        curve = curves[number % len(curves)]
        caps = tuple(int(watts) for watts, _ in curve)
        done = study(
            Phase.BASELINE,
            constraints=(),
            devices=(device,),
            id=f"curve{number}",
            space=Space((knob(LIMIT, caps, caps[-1]),)),
        )
        store.studies.add(done, "bench", "measured elsewhere")
        for watts, rate in curve:
            trial = store.trials.begin(
                done.id, {LIMIT: int(watts)}, Phase.BASELINE if int(watts) == caps[-1] else Phase.TUNING,
                "measured elsewhere", START,
            )  # fmt: skip
            power = {"power_w": Estimate.of_mean(watts, 0.01 * watts, 10)}
            seen = window(watts / rate, 1000.0 / rate, rate=rate, extra=power, context={})
            store.trials.end(
                done.id, trial.number, Outcome(state=TrialState.COMPLETED, measurement=seen), START
            )
        stopped = replace(store.studies.get(done.id), phase=Phase.STOPPED)
        store.studies.revise(stopped, "bench", "measured elsewhere", START)
    return len(devices) if curves else 0
