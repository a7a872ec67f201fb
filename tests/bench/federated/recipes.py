"""The federations of the bench: made tasks, clients and networks. Every third one judges only.

Policies are chosen on the other two thirds. The numbers are ours; joules and seconds follow from the
devices in `devices.toml`, or from classes of our own, whose powers are made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jouletune_bench.fleet.devices import DeviceClass, FleetDevices, load_devices
from jouletune_bench.fleet.task import Array, TrainingTask
from tests.bench.federated.setups import FederationSetup

TESTED = 0.25
STEPPED: Mapping[str, Any] = {
    "intervals": (1, 2, 5, 10, 20, 50, 100),
    "held": {"participants": 10, "batch_size": 8},
}
"""Only the steps between two averagings are chosen."""


@dataclass(frozen=True)
class MadeTask:
    """Samples about some centres of each label, or (no centres) labelled by a random network."""

    name: str
    samples: int
    features: int
    labels: int
    centres: int = 2
    spread: float = 1.2
    wrong: float = 0.03

    def __call__(self, seed: int) -> TrainingTask:
        """Return the samples of a seed."""
        rng = np.random.default_rng([seed, 41, self.samples, self.features])
        features, labels = self._drawn(rng)
        wrong = rng.random(self.samples) < self.wrong
        labels[wrong] = rng.integers(self.labels, size=int(wrong.sum()))
        test = int(TESTED * self.samples)
        return TrainingTask(
            self.name, features[test:], labels[test:], features[:test], labels[:test]
        )

    def _drawn(self, rng: np.random.Generator) -> tuple[Array, np.ndarray]:
        normal = rng.normal(size=(self.samples, self.features))
        if not self.centres:
            first = rng.normal(size=(self.features, 2 * self.labels)) / np.sqrt(self.features)
            logits = np.tanh(2.0 * normal @ first) @ rng.normal(size=(2 * self.labels, self.labels))
            return normal, (logits - logits.mean(axis=0)).argmax(axis=1).astype(np.int64)
        labels = rng.integers(self.labels, size=self.samples)
        centres = rng.normal(size=(self.labels, self.centres, self.features))
        about = centres[labels, rng.integers(self.centres, size=self.samples)]
        return about + self.spread * normal, labels.astype(np.int64)


def devices(
    *, flops: float = 1.0, size: float = 1.0, classes: Mapping[str, tuple[float, ...]] = {}
) -> FleetDevices:
    """Return phones with other work and another model's size, or devices of other classes.

    `classes` has the share, the GFLOPS, and the busy and idle power of each.
    """
    usual = load_devices()
    work = replace(
        usual.work,
        flops_per_sample=flops * usual.work.flops_per_sample,
        model_bytes=size * usual.work.model_bytes,
    )
    own = tuple(DeviceClass(name, *numbers) for name, numbers in classes.items())
    return replace(usual, work=work, classes=own or usual.classes)


CARS = {"car": (0.4, 900.0, 45.0, 3.0), "phone": (0.6, 60.0, 4.5, 0.3)}
FARM = {
    "tractor": (0.3, 500.0, 30.0, 2.0),
    "tablet": (0.4, 90.0, 6.0, 0.5),
    "tag": (0.3, 20.0, 1.5, 0.1),
}
SHOPS = {"till": (0.5, 300.0, 20.0, 4.0), "scanner": (0.5, 35.0, 2.5, 0.2)}


UNLIKE = ("cars and phones", "farm", "shops")


def federations() -> dict[str, FederationSetup]:
    """Return the federations by title."""
    few, some, many = 8, 24, 60
    words = MadeTask("words", 1200, 16, 6)
    waves = MadeTask("waves", 1000, 12, 4, spread=1.5)
    notes = MadeTask("notes", 1200, 12, 4, centres=0)
    marks = MadeTask("marks", 1600, 20, 8, spread=1.0)
    table = {
        "words, IID": FederationSetup(words, None, devices(), 30, some),
        "waves, by label": FederationSetup(waves, 0.1, devices(), 40, some),
        "notes, few clients": FederationSetup(notes, 0.5, devices(), 40, few),
        "marks, many clients": FederationSetup(marks, 0.3, devices(), 40, many),
        "words, by label, radio-bound": FederationSetup(words, 0.2, devices(size=4.0), 40, some),
        "marks, few clients, IID": FederationSetup(marks, None, devices(flops=8.0), 30, few),
        "waves, compute-bound": FederationSetup(waves, 1.0, devices(flops=60.0), 40, some),
        "notes, compute-bound": FederationSetup(notes, 0.3, devices(flops=40.0), 40, 16),
        "marks, radio-bound, by label": FederationSetup(marks, 0.1, devices(size=6.0), 40, some),
        "cars and phones": FederationSetup(words, 0.5, devices(flops=40.0, classes=CARS), 40, some),
        "waves, IID, many clients": FederationSetup(waves, None, devices(size=0.3), 30, many),
        "farm": FederationSetup(notes, 1.0, devices(flops=30.0, classes=FARM), 40, some),
        "shops": FederationSetup(waves, None, devices(flops=20.0, classes=SHOPS), 30, 16),
        "words, steps": FederationSetup(words, None, devices(), 25, some, **STEPPED),
        "waves, steps, by label": FederationSetup(waves, 0.1, devices(), 40, some, **STEPPED),
        "marks, steps": FederationSetup(marks, 0.5, devices(size=3.0), 30, some, **STEPPED),
    }
    grams = {
        "cars and phones": {"car": 300.0, "phone": 480.0},
        "farm": {"tractor": 700.0, "tablet": 100.0, "tag": 100.0},
        "waves, by label": {"high": 480.0, "mid": 250.0, "low": 60.0},
        "notes, compute-bound": {"high": 60.0, "mid": 250.0, "low": 480.0},
    }
    return {
        title: replace(
            setup,
            judges=number % 3 == 2,
            unlike=title in UNLIKE,
            g_per_kwh=grams.get(title, {}),
        )
        for number, (title, setup) in enumerate(table.items())
    }
