"""A simulated device: its description, and the windows on it by the simulator's physics."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agents.devices.simulated import DEFAULT_WORKLOAD, VERSION, truth
from agents.devices.simulated.meter import metrics
from agents.devices.simulated.presets import PRESETS
from tuner.core import (
    Device,
    Estimate,
    Load,
    Measurement,
    Origin,
    Setting,
    SettingKey,
    setting_key,
)

NOISE = 0.01
"""The relative standard error of every metric of a window, which is also its true scatter."""
TAIL_N = 400
"""The number of requests behind a window's percentiles: enough to bound a p99."""


@dataclass(frozen=True)
class DeviceModel:
    """One preset of the simulator, with the steady state of each setting, computed once.

    Raises:
        InvalidInput: there is no such preset.
    """

    spec: str
    _settled: dict[SettingKey, Mapping[str, float]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        truth(self.spec)

    def described(self, id: str, agent: str, at: datetime) -> Device:
        """Return a device of this model as its agent registers it."""
        preset, workload = PRESETS[self.spec.partition("/")[0]], self.spec.partition("/")[2]
        return Device(
            id=id,
            kind="simulated",
            board=f"{preset.board} (simulated fleet)",
            driver=VERSION,
            agent=agent,
            workload=workload or DEFAULT_WORKLOAD,
            workload_version=VERSION,
            space=preset.space,
            metrics=metrics(preset.scope),
            cannot=preset.cannot,
            seen_at=at,
        )

    @property
    def default(self) -> Setting:
        """The initial setting of a device of this model."""
        return PRESETS[self.spec.partition("/")[0]].space.default

    def window(
        self, setting: Setting, at: datetime, seconds: float, rng: random.Random
    ) -> Measurement:
        """Return the measurement of a window. Raises InvalidInput: the model lacks the setting."""
        key = setting_key(setting)
        settled = self._settled.get(key)
        if settled is None:
            settled = self._settled[key] = truth(self.spec)(setting)
        rate = settled["throughput_per_s"]
        return Measurement(
            estimates={name: _seen(name, mean, rng) for name, mean in settled.items()},
            started_at=at,
            seconds=seconds,
            load=Load(completed=max(1, int(rate * seconds))),
            context={"arrival_rate_per_s": rate},
        )


def _seen(name: str, mean: float, rng: random.Random) -> Estimate:
    seen = mean * rng.gauss(1.0, NOISE)
    n = TAIL_N if name.startswith("latency") else 10
    return Estimate.of_mean(seen, NOISE * seen, n, origin=Origin.SIMULATED)
