"""The federations of the bench: made tasks, clients and networks. A third, and the later ones, judge only.

Policies are chosen on the rest. The numbers are ours; joules and seconds follow from the
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
CLINICS = {"server": (0.3, 800.0, 60.0, 8.0), "laptop": (0.7, 150.0, 14.0, 1.5)}
SHIPS = {"bridge": (0.4, 350.0, 28.0, 3.0), "crew": (0.6, 70.0, 4.0, 0.4)}

UNLIKE = ("cars and phones", "farm", "shops", "clinics", "ships")


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
    chosen_on = [title for number, title in enumerate(table) if number % 3 != 2]
    table |= _later()
    grams = {
        "cars and phones": {"car": 300.0, "phone": 480.0},
        "farm": {"tractor": 700.0, "tablet": 100.0, "tag": 100.0},
        "waves, by label": {"high": 480.0, "mid": 250.0, "low": 60.0},
        "notes, compute-bound": {"high": 60.0, "mid": 250.0, "low": 480.0},
        "posts, by label": {"high": 450.0, "mid": 200.0, "low": 80.0},
        "scans, compute-bound": {"high": 80.0, "mid": 300.0, "low": 500.0},
        "clinics": {"server": 500.0, "laptop": 150.0},
    }
    return {
        title: replace(
            setup,
            judges=title not in chosen_on,
            unlike=title in UNLIKE,
            g_per_kwh=grams.get(title, {}),
        )
        for title, setup in table.items()
    }


def _later() -> dict[str, FederationSetup]:
    """Return federations that were made once the policy was chosen: no choice was made on them."""
    posts = MadeTask("posts", 1400, 14, 5, spread=1.3)
    scans = MadeTask("scans", 1000, 12, 4, spread=1.5)
    letters = MadeTask("letters", 1300, 18, 6, centres=3, spread=1.1)
    calls = MadeTask("calls", 1100, 12, 5, centres=0, wrong=0.05)
    signs = MadeTask("signs", 1500, 20, 7, spread=1.0)
    turns = MadeTask("turns", 1600, 16, 6, centres=0)
    files = MadeTask("files", 1200, 14, 4, centres=0)
    logs = MadeTask("logs", 1300, 12, 5, centres=3, spread=1.2)
    songs = MadeTask("songs", 1200, 16, 6)
    clinics, ships = devices(flops=35.0, classes=CLINICS), devices(flops=20.0, classes=SHIPS)
    return {
        "letters, IID": FederationSetup(letters, None, devices(), 30, 24),
        "posts, by label": FederationSetup(posts, 0.15, devices(), 45, 30),
        "calls, few clients": FederationSetup(calls, 0.4, devices(), 40, 9),
        "turns, many clients": FederationSetup(turns, 0.5, devices(size=0.5), 40, 70),
        "signs, radio-bound": FederationSetup(signs, 0.2, devices(size=6.0), 40, 24),
        "scans, compute-bound": FederationSetup(scans, 0.6, devices(flops=55.0), 40, 20),
        "clinics": FederationSetup(files, 0.4, clinics, 40, 20),
        "ships": FederationSetup(logs, None, ships, 30, 16),
        "songs, few clients, IID": FederationSetup(songs, None, devices(size=3.0), 30, 8),
    }
