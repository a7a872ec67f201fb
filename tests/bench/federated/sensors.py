"""A federation of sensors as a separate recipe: other clients, work, networks, grids and data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.task import TrainingTask
from tests.bench.federated.setups import FederationSetup

SAMPLES, FEATURES, KINDS, UNITS = 4_800, 24, 6, 12


def federation() -> FederationSetup:
    """Return sixty sensors with a third of the radio power and four times the work, on different grids."""
    devices = load_devices().scaled(radio=0.33)
    work = replace(devices.work, flops_per_sample=4.0 * devices.work.flops_per_sample)
    grids = {"high": 481.0, "mid": 250.0, "low": 60.0}
    return FederationSetup(
        sensors, 0.3, replace(devices, work=work), 120, clients=60, g_per_kwh=grids
    )


def sensors(seed: int) -> TrainingTask:
    """Return samples labelled by a random network; neighbouring features are correlated."""
    rng = np.random.default_rng([seed, 23])
    features = rng.normal(size=(SAMPLES, FEATURES))
    for i in range(1, FEATURES):
        features[:, i] = 0.5 * features[:, i - 1] + 0.87 * features[:, i]
    first = rng.normal(size=(FEATURES, UNITS)) / np.sqrt(FEATURES)
    second = rng.normal(size=(UNITS, KINDS))
    logits = np.tanh(features @ first) @ second
    labels = (logits - logits.mean(axis=0)).argmax(axis=1).astype(np.int64)
    tested = SAMPLES // 5
    return TrainingTask(
        "sensors", features[tested:], labels[tested:], features[:tested], labels[:tested]
    )
