"""Flower clients within this process, over the modelled federation, and their failures."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Context as RunContext
from flwr.app import Message, RecordDict

from agents.federated.ports import RoundOutcome
from jouletune_bench.fleet.app.fedgpo_digits.client_app import app
from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.task import digits
from jouletune_bench.fleet.weights import arrays_of, weights_of
from tuner.core import Context, Setting, Space

Node = Callable[[Message], Message | None]


RUN = {"clients": 20, "alpha": 0.1, "seed": 0}


def training(clients: int = 20) -> FederatedTraining:
    return FederatedTraining(digits(0), load_devices(), 0, 0.1, clients)


def nodes(of: FederatedTraining) -> dict[int, Node]:
    """Return the example app's own clients."""
    run = {**RUN, "clients": len(of.fleet)}

    def node(number: int) -> Node:
        context = RunContext(1, 1000 + number, {"partition-id": number}, RecordDict(), run)
        return lambda message: app(message, context)

    return {1000 + own.number: node(own.number) for own in of.fleet}


def failing(
    answers: Mapping[int, Node], drop: float, nan: float, misshapen: int
) -> dict[int, Node]:
    """Return clients of which some drop out of a round, some send NaN, and one sends a wrong shape."""
    dice = random.Random(0)

    def broken(node: int, answer: Node) -> Node:
        def wrong(message: Message) -> Message | None:
            reply = answer(message)
            if reply is None or message.metadata.message_type != "train":
                return reply
            chance = dice.random()
            if chance < drop / 2:
                return None
            if chance < drop:
                raise ConnectionError("the battery is empty")
            weights = weights_of(reply.content["arrays"])
            if chance < drop + nan:
                reply.content["arrays"] = arrays_of((weights[0] * np.nan, *weights[1:]))
            elif node == misshapen:
                reply.content["arrays"] = arrays_of((weights[0][:1], *weights[1:]))
            return reply

        return wrong

    return {node: broken(node, answer) for node, answer in answers.items()}


@dataclass
class Scripted:
    """A tuner with scripted settings of the rounds, which records the outcomes."""

    space: Space
    settings: Sequence[Setting]
    asked: list[Context] = field(default_factory=list)
    told: list[RoundOutcome] = field(default_factory=list)
    closed: bool = False
    rounds: int = 1000
    """The number of rounds until the goal is reached."""

    @property
    def ended(self) -> str:
        return "the goal is reached" if len(self.asked) > self.rounds else ""

    def begin(self, context: Context) -> Setting:
        self.asked.append(context)
        return self.settings[min(len(self.asked), len(self.settings)) - 1]

    def end(self, outcome: RoundOutcome) -> None:
        self.told.append(outcome)

    def close(self) -> None:
        self.closed = True
