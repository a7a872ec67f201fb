"""A federation in training: one round after the other, each with its own setting."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from agents.federated.space import CLIENTS, federation_space
from jouletune_bench.fleet.devices import FleetDevices
from jouletune_bench.fleet.energy import ClientCost, client_cost, waiting_j
from jouletune_bench.fleet.population import (
    Conditions,
    FleetClient,
    conditions,
    population,
)
from jouletune_bench.fleet.task import (
    TrainingTask,
    Weights,
    averaged,
    fresh_weights,
    trained_together,
)
from tuner.core import Context, Setting, Space

PARTICIPANTS: tuple[int, ...] = (10, 20, 50)
INTERVALS = (1, 2, 5, 10, 20, 50, 100)
"""Steps between two averagings, if that is a knob."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round: its first state, and its metrics by name (joules, seconds, shares)."""

    context: Context
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """The work of a client in a round: its batch size, and its epochs or `steps` above 0."""

    batch: int
    epochs: int
    steps: int = 0

    @classmethod
    def of(cls, setting: Setting, kind: str) -> LocalTraining:
        """Return the work of a class of clients under a setting."""
        batch, epochs = setting[f"batch_size.{kind}"], setting[f"local_epochs.{kind}"]
        return cls(int(batch), int(epochs), int(setting.get("averaging_steps", 0)))

    def passes(self, samples: int) -> float:
        """Return the number of passes over `samples`."""
        return self.steps * min(self.batch, samples) / samples if self.steps else float(self.epochs)


@dataclass
class FederatedTraining:
    """A training by federated averaging over different clients; deterministic by its seed and settings.

    `participants` are the counts that a round may have, by default those that fit the clients.
    """

    task: TrainingTask
    devices: FleetDevices
    seed: int
    alpha: float | None = None
    clients: int = CLIENTS
    intervals: tuple[int, ...] = ()
    participants: tuple[int, ...] = ()
    round: int = field(default=0, init=False)
    weights: Weights = field(init=False)
    accuracy: float = field(init=False)
    _held: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = fresh_weights(self.task, self.seed)
        self.accuracy = self.task.accuracy(self.weights)
        self.fleet = population(self.devices, self.task.labels, self.clients, self.alpha, self.seed)
        self._held = [len(np.unique(self.task.labels[c.samples])) for c in self.fleet]

    @property
    def space(self) -> Space:
        """The knobs of a round."""
        kinds = [kind.name for kind in self.devices.classes]
        return federation_space(kinds, self.clients, self.intervals, self.participants)

    def state(self) -> Context:
        """Return the state before the next round: the mean of each class's clients."""
        state: dict[str, float] = {"round": float(self.round + 1), "accuracy": self.accuracy}
        for kind in self.devices.classes:
            own = [client for client in self.fleet if client.kind.name == kind.name]
            now = [self._conditions(client) for client in own]
            held = [self.held(client) for client in own]
            if not own:
                continue
            state[f"load.{kind.name}"] = fmean(c.load for c in now)
            state[f"memory.{kind.name}"] = fmean(c.memory for c in now)
            state[f"network_mbps.{kind.name}"] = fmean(c.link.up_mbps for c in now)
            state[f"data_classes.{kind.name}"] = fmean(held)
        return state

    def run(self, setting: Setting) -> RoundResult:
        """Run one round: K clients drawn by seed train, their weights are averaged."""
        began, before = self.state(), self.accuracy
        rng = np.random.default_rng([self.seed, 6, self.round])
        count = min(int(setting["participants"]), len(self.fleet))
        chosen = [self.fleet[int(i)] for i in rng.permutation(len(self.fleet))[:count]]
        updates = self._updates(chosen, setting)
        gained = [self.own_gain(c, w) for c, (w, _) in zip(chosen, updates, strict=True)]
        costs = [
            (client, self.cost(client, LocalTraining.of(setting, client.kind.name), self.round)[0])
            for client in chosen
        ]
        self.round += 1
        self.weights = averaged(updates)
        self.accuracy = self.task.accuracy(self.weights)
        metrics = round_metrics(costs, self.devices)
        progress = {
            "accuracy": self.accuracy,
            "accuracy_gain": self.accuracy - before,
            "skew_loss": fmean(gained) - (self.accuracy - before),
        }
        return RoundResult(
            began, {**metrics, **progress, "participated": float(count), "failed": 0.0}
        )

    def own_gain(self, client: FleetClient, weights: Weights) -> float:
        """Return the gain in accuracy on a client's own samples by its training."""
        before, after = (self.task.own_accuracy(w, client.samples) for w in (self.weights, weights))
        return after - before

    def _updates(
        self, chosen: Sequence[FleetClient], setting: Setting
    ) -> list[tuple[Weights, int]]:
        """Return each client's trained weights, with its samples; equal clients train together."""
        trainings = [LocalTraining.of(setting, client.kind.name) for client in chosen]
        updates: dict[int, Weights] = {}
        for same in dict.fromkeys(trainings):
            own = [c for c, wish in zip(chosen, trainings, strict=True) if wish == same]
            orders = [(self.seed, 7, c.number, self.round) for c in own]
            samples = [c.samples for c in own]
            trained = trained_together(
                self.task, self.weights, samples, same.batch, same.epochs, orders, same.steps
            )
            updates |= {c.number: w for c, w in zip(own, trained, strict=True)}
        return [(updates[c.number], len(c.samples)) for c in chosen]

    def cost(
        self, client: FleetClient, training: LocalTraining, number: int
    ) -> tuple[ClientCost, Conditions]:
        """Return a client's cost in a round, and its conditions."""
        now = conditions(self.devices, client, number, self.seed)
        cost = client_cost(
            client.kind,
            self.devices.work,
            now.link,
            len(client.samples),
            training.batch,
            training.passes(len(client.samples)),
            now.load,
        )
        return cost, now

    def held(self, client: FleetClient) -> float:
        """Return the share of all labels for which a client has samples."""
        return self._held[client.number] / self.task.classes

    def _conditions(self, client: FleetClient) -> Conditions:
        return conditions(self.devices, client, self.round, self.seed)


def round_metrics(
    costs: Sequence[tuple[FleetClient, ClientCost]], devices: FleetDevices
) -> dict[str, float]:
    """Return the costs of a round: joules by part and by class, seconds, carbon."""
    round_s = max(cost.seconds for _, cost in costs)
    waiting = [waiting_j(client.kind, cost, round_s) for client, cost in costs]
    by_class: dict[str, float] = defaultdict(float)
    slowest: dict[str, float] = defaultdict(float)
    counts = Counter(client.kind.name for client, _ in costs)
    for (client, cost), waits in zip(costs, waiting, strict=True):
        name = client.kind.name
        by_class[name] += cost.compute_j + cost.communication_j + waits
        slowest[name] = max(slowest[name], cost.seconds)
    energy = math.fsum(by_class.values())
    return {
        "energy_j": energy,
        "compute_j": math.fsum(cost.compute_j for _, cost in costs),
        "communication_j": math.fsum(cost.communication_j for _, cost in costs),
        "waiting_j": math.fsum(waiting),
        **{f"energy_{kind.name}_j": by_class[kind.name] for kind in devices.classes},
        **{f"participated_{kind.name}": float(counts[kind.name]) for kind in devices.classes},
        **{f"slowest_{name}_s": seconds for name, seconds in slowest.items()},
        "round_s": round_s,
        "carbon_g": devices.carbon_g(energy),
    }
