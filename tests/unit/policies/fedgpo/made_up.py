"""A simulated federation with known gains, known costs and known best settings."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from tests.builders import study, trial, window_of
from tuner.core import (
    Context,
    Estimate,
    Knob,
    Mode,
    Part,
    Past,
    Phase,
    Policy,
    Role,
    Setting,
    Space,
    Study,
    Terms,
    Trial,
    Try,
)

CLASSES = {"high": 1.0, "mid": 1.6, "low": 2.5}
"""The joules of a client's epoch, by its class."""
SEND_J = 3.0
SECONDS = 10.0
"""Of a round without training; each epoch adds one second."""


def space(classes: tuple[str, ...] = tuple(CLASSES)) -> Space:
    """Return the grid of K, and of B and E per class, with Flower's defaults."""
    part = Part.WORKLOAD
    knobs = [Knob("participants", (10, 20, 50), 50, part, role=Role.PARTICIPANTS)]
    for name in classes:
        knobs.append(Knob(f"batch_size.{name}", (8, 16, 32), 32, part, role=Role.LOCAL_BATCH))
        knobs.append(Knob(f"local_epochs.{name}", (1, 5, 10), 1, part, role=Role.LOCAL_EPOCHS))
    return Space(tuple(knobs))


def federated(seed: int = 0, **changes: object) -> Study:
    terms = Terms(mode=Mode.CONTINUOUS, allow_estimated=True)
    fields: dict[str, object] = {"space": space(), "constraints": (), "terms": terms, "seed": seed}
    return study(**{**fields, **changes})  # type: ignore[arg-type]


@dataclass
class MadeUp:
    """A federation in training: five epochs are best, and fifty participants waste energy."""

    seed: int = 0
    accuracy: float = 0.1
    noise: float = 0.1
    clients: int = 50

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def gain(self, setting: Setting) -> float:
        """Return the decrease of the error's logarithm in a round."""
        e = sum(float(setting[f"local_epochs.{n}"]) for n in CLASSES) / len(CLASSES)
        b = sum(float(setting[f"batch_size.{n}"]) for n in CLASSES) / len(CLASSES)
        k = float(setting["participants"])
        return float(0.08 * e / (1.0 + e / 6.0) * (16.0 / b) ** 0.3 * (k / 20.0) ** 0.15)

    def joules(self, setting: Setting) -> dict[str, float]:
        """Return the joules of each class in a round."""
        k = min(float(setting["participants"]), self.clients) / len(CLASSES)
        return {
            name: k * (SEND_J + joules * float(setting[f"local_epochs.{name}"]))
            for name, joules in CLASSES.items()
        }

    def parts(self, setting: Setting) -> dict[str, float]:
        """Return the costs of a round, in total and by part."""
        k = min(float(setting["participants"]), self.clients)
        energy, sending = math.fsum(self.joules(setting).values()), k * SEND_J
        epochs = max(float(setting[f"local_epochs.{n}"]) for n in CLASSES)
        return {
            "energy_j": energy,
            "compute_j": energy - sending,
            "communication_j": sending,
            "carbon_g": 0.1 * energy,
            "round_s": SECONDS + epochs,
            "participated": k,
            "failed": 0.0,
        }

    def efficiency(self, setting: Setting) -> float:
        return self.gain(setting) / math.fsum(self.joules(setting).values())

    def state(self, number: int) -> Context:
        return {"accuracy": self.accuracy, "round": float(number)} | {
            f"{what}.{name}": value
            for name in CLASSES
            for what, value in (("load", 0.1 * (number % 3)), ("network_mbps", 60.0))
        }

    def round(self, number: int, setting: Setting, phase: Phase = Phase.TUNING) -> Trial:
        """Train for a round, and return its trial."""
        state = self.state(number)
        fall = self.gain(setting) * math.exp(self._dice.gauss(0.0, self.noise))
        self.accuracy = 1.0 - (1.0 - self.accuracy) * math.exp(-fall)
        spent = self.joules(setting)
        shown = {**self.parts(setting), "accuracy": self.accuracy}
        shown |= {f"energy_{name}_j": joules for name, joules in spent.items()}
        estimates = {name: Estimate.of_mean(value, 0.0) for name, value in shown.items()}
        measurement = window_of(estimates, state, int(setting["participants"]))
        return trial(number, setting, measurement, phase=phase)


def started(policy: Policy, at: Study, rounds: int) -> tuple[list[Trial], MadeUp]:
    """Return the trials of a training without a baseline, and the state of the federation."""
    made, trials = MadeUp(at.seed), list[Trial]()
    for number in range(1, rounds + 1):
        answer = policy.suggest(situation(at, trials, made))
        assert isinstance(answer, Try), answer
        at.space.check(answer.setting)
        trials.append(made.round(number, answer.setting))
    return trials, made


def played(policy: Policy, at: Study, rounds: int) -> tuple[list[Trial], float]:
    """Return the trials of a training, and the joules per decrease of the error's logarithm by one."""
    made = MadeUp(at.seed)
    trials = [made.round(n, at.baseline, Phase.BASELINE) for n in (1, 2)]
    for number in range(3, rounds + 1):
        answer = policy.suggest(situation(at, trials, made))
        assert isinstance(answer, Try), answer
        at.space.check(answer.setting)
        trials.append(made.round(number, answer.setting))
    joules = math.fsum(t.shown["energy_j"].mean for t in trials)
    return trials, joules / -math.log((1.0 - made.accuracy) / 0.9)


def situation(at: Study, trials: list[Trial], made: MadeUp) -> Past:
    return Past(study=at, trials=tuple(trials), context=made.state(len(trials) + 1))
