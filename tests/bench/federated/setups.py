"""The judged federations: their tasks and clients. A further one takes one function.

`python -m tests.bench federated FILE --recipe MODULE:FUNCTION` judges another federation: the function
returns a `FederationSetup`, whose task is a module-level function of a seed.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.federated import space
from agents.federated.space import BATCHES, CLIENTS, EPOCHS, FLOWER, participants_of
from jouletune_bench.fleet import rounds as fleet_rounds
from jouletune_bench.fleet.devices import FleetDevices
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.task import TrainingTask
from tuner.core import InvalidInput, Space

Fixed = Mapping[str, int]
"""One K, B and E for all clients, as `participants`, `batch_size` and `local_epochs`."""


@dataclass(frozen=True, slots=True)
class FederationSetup:
    """A federation: a task by seed, an α (None: equal clients), devices, and the number of rounds.

    `participants` are the counts that a round may have, by default those that fit the clients;
    `g_per_kwh` the carbon intensity of each class's electricity, by default the devices' for all;
    `held` has the values that are fixed in all rounds, by the prefix of their knobs' names. One that
    `judges` is not looked at while a policy is chosen. In an `unlike` one, classes differ by design.
    """

    task: Callable[[int], TrainingTask]
    alpha: float | None
    devices: FleetDevices
    rounds: int
    clients: int = CLIENTS
    participants: tuple[int, ...] = ()
    intervals: tuple[int, ...] = ()
    g_per_kwh: Mapping[str, float] = field(default_factory=dict)
    held: Fixed = field(default_factory=dict)
    judges: bool = False
    unlike: bool = False

    def training(self, seed: int) -> FederatedTraining:
        """Return a new training."""
        return FederatedTraining(
            self.task(seed),
            self.devices,
            seed,
            self.alpha,
            self.clients,
            self.intervals,
            self.participants,
        )

    def space(self, of: FederatedTraining) -> Space:
        """Return the knobs of a training's rounds, without the fixed ones."""
        return Space(
            tuple(
                replace(knob, values=(value,), default=value)
                if (value := self.held.get(knob.name.partition(".")[0])) is not None
                else knob
                for knob in of.space.knobs
            )
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """The possible numbers of participants of a round."""
        return self.participants or participants_of(self.clients)

    @property
    def defaults(self) -> Fixed:
        """Flower's defaults, with half of the clients, or the nearest possible number."""
        nearest = min(self.counts, key=lambda count: abs(count - self.clients / 2))
        return {**FLOWER, "participants": nearest}

    @property
    def grid(self) -> tuple[Fixed, ...]:
        """Every fixed setting with equal values for all classes."""
        if self.intervals:
            return tuple({**self.held, "averaging_steps": steps} for steps in self.intervals)
        return tuple(
            {"participants": k, "batch_size": b, "local_epochs": e}
            for k, b, e in itertools.product(self.counts, BATCHES, EPOCHS)
        )

    @property
    def key(self) -> str:
        """The key of its trainings in the cache: the setup, and the code that trains."""
        named = self.task if inspect.isfunction(self.task) else type(self.task)
        code = hashlib.sha256(Path(inspect.getfile(named)).read_bytes())
        fleet = Path(fleet_rounds.__file__).parent.glob("*.*")
        for file in (Path(space.__file__), *sorted(fleet)):
            code.update(file.read_bytes())
        task = self.task.__qualname__ if inspect.isfunction(self.task) else repr(self.task)
        fields: dict[str, Any] = {**asdict(self), "task": task, "judges": None, "unlike": None}
        return json.dumps([fields, code.hexdigest()], sort_keys=True)


def by_name(recipe: str) -> FederationSetup:
    """Return the federation of a recipe, as `MODULE:FUNCTION`.

    Raises:
        InvalidInput: there is none.
    """
    module, _, function = recipe.partition(":")
    try:
        setup = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(
            f"there is no recipe {recipe}: {error}",
            hint="name a function that returns a FederationSetup, as MODULE:FUNCTION",
        ) from None
    assert isinstance(setup, FederationSetup), recipe
    return setup
