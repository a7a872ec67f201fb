"""The classes of clients under the strategy, whose queries may have late replies or none."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import pytest

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")

from flwr.app import Error, Message
from flwr.serverapp.strategy import FedAvg

from agents.federated.strategy import FedGPO
from jouletune_bench.fleet.weights import arrays_of
from tests.federated.clients import Node, Scripted, nodes, training
from tests.federated.grid import LocalGrid
from tests.federated.test_strategy import NO_EVALUATION, ran, setting


def test_each_client_gets_its_classs_batch_and_epochs_and_its_own_config() -> None:
    of = training()
    grid = LocalGrid(nodes(of))
    tuner = Scripted(of.space, [setting(of, high=5, mid=1, low=10)])
    ran(of, grid, tuner, rounds=1)
    sent = [m for m in grid.sent if m.metadata.message_type == "train"]
    assert len(sent) == 10 == len({m.metadata.dst_node_id for m in sent})
    wanted = {"high": 5, "mid": 1, "low": 10}
    for message in sent:
        kind = of.fleet[message.metadata.dst_node_id - 1000].kind.name
        assert message.content["config"]["local-epochs"] == wanted[kind]
    assert len({id(m.content["config"]) for m in sent}) == 10


def without_class(reply: Message | None) -> Message | None:
    """Return a reply to training as of an app that reports its class only to queries."""
    if reply is not None:
        del reply.content["client"]
    return reply


def test_clients_without_a_class_count_as_the_first_and_are_not_queried_for_ever() -> None:
    of = training()

    def mute(answer: Node) -> Node:
        def told(message: Message) -> Message | None:
            if message.metadata.message_type == "query":
                raise NotImplementedError("no query function")
            return without_class(answer(message))

        return told

    tuner = Scripted(of.space, [setting(of, k=20, high=5)])
    grid = LocalGrid({n: mute(a) for n, a in nodes(of).items()})
    ran(of, grid, tuner, rounds=5)
    assert len([m for m in grid.sent if m.metadata.message_type == "query"]) == 3 * 20
    sent = [m for m in grid.sent if m.metadata.message_type == "train"]
    assert {m.content["config"]["local-epochs"] for m in sent} == {5}


@pytest.mark.parametrize("silent", [True, False], ids=["no reply", "an error"])
@pytest.mark.parametrize("also_trained", [True, False], ids=["in both replies", "in queries"])
def test_a_client_that_failed_to_report_its_class_is_known_a_round_later(
    silent: bool, also_trained: bool
) -> None:
    of = training()
    queried: list[int] = []

    def mute_once(node: int, answer: Node) -> Node:
        def told(message: Message) -> Message | None:
            if message.metadata.message_type == "train":
                return answer(message) if also_trained else without_class(answer(message))
            queried.append(node)
            if queried.count(node) == 1:
                if silent:
                    return None
                raise ConnectionError("the battery is empty")
            return answer(message)

        return told

    tuner = Scripted(of.space, [setting(of, k=20, high=1, mid=5, low=10)])
    grid = LocalGrid({n: mute_once(n, a) for n, a in nodes(of).items()})
    ran(of, grid, tuner, rounds=3)
    times = 1 if also_trained else 2
    assert sorted(queried) == sorted([*nodes(of)] * times), "a known client is not queried"
    trains = [m for m in grid.sent if m.metadata.message_type == "train"]
    assert {m.content["config"]["local-epochs"] for m in trains[:20]} == {1}
    assert {m.content["config"]["local-epochs"] for m in trains[20:]} == {1, 5, 10}
    kinds = [tuner.told[0].metrics[f"energy_{kind}_j"] for kind in ("high", "mid", "low")]
    assert math.fsum(kinds) == pytest.approx(tuner.told[0].metrics["energy_j"])
    assert (min(kinds) > 0.0) == also_trained


class StartingGrid(LocalGrid):
    """A grid whose clients still start: queries have no reply before `trained` trainings have one.

    As Flower's, it replies itself, in its own name, to a query that has expired.
    """

    def __init__(self, nodes: dict[int, Node], trained: float) -> None:
        super().__init__(nodes)
        self._trained = trained

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        sent = {m.metadata.message_id: m for m in self.sent}
        trains = sum(m.metadata.message_type == "train" for m in self.sent)
        early = trains < self._trained
        kept = [i for i in message_ids if early and sent[i].metadata.message_type == "query"]
        expired = []
        for one in kept[:1] if self._trained == math.inf else ():
            expired.append(Message(Error(0, "expired"), reply_to=sent[one]))
            expired[-1].metadata._src_node_id = 1
        return [*super().pull_messages([i for i in message_ids if i not in kept]), *expired]


@pytest.mark.parametrize("trained", [20, math.inf], ids=["late", "never"])
def test_clients_that_still_start_delay_no_round_whose_setting_is_the_same_for_all(
    trained: float,
) -> None:
    of = training()

    def by_query(answer: Node) -> Node:
        def told(message: Message) -> Message | None:
            reply = answer(message)
            return reply if message.metadata.message_type == "query" else without_class(reply)

        return told

    metrics, took = [], []
    for at in (setting(of, k=20), setting(of, k=20, high=5)):
        grid = StartingGrid({n: by_query(a) for n, a in nodes(of).items()}, trained)
        tuner = Scripted(of.space, [at])
        strategy = FedGPO(tuner, FedAvg(**NO_EVALUATION), wait_s=5.0)
        began = time.monotonic()
        strategy.start(grid, arrays_of(of.weights), num_rounds=1)
        took.append(time.monotonic() - began)
        metrics.append(tuner.told[0].metrics)
    assert took[0] < 4.0 < took[1] < 9.0
    for shown in metrics:
        kinds = [shown[f"energy_{kind}_j"] for kind in ("high", "mid", "low")]
        assert math.fsum(kinds) == pytest.approx(shown["energy_j"])
        assert (min(kinds) > 0.0) == math.isfinite(trained)


def test_carbon_is_by_the_intensity_of_each_class() -> None:
    of = training()
    metrics = []
    for intensity in (360.0, {"high": 360.0, "mid": 0.0, "low": 720.0}, {"high": 360.0}):
        tuner = Scripted(of.space, [setting(of, k=20)])
        strategy = FedGPO(tuner, FedAvg(**NO_EVALUATION), wait_s=0.0, g_per_kwh=intensity)
        strategy.start(LocalGrid(nodes(of)), arrays_of(of.weights), num_rounds=1)
        metrics.append(tuner.told[0].metrics)
    same, classes, missing = metrics
    assert same["carbon_g"] == pytest.approx(same["energy_j"] * 1e-4)
    by_class = classes["energy_high_j"] + 2.0 * classes["energy_low_j"]
    assert classes["carbon_g"] == pytest.approx(1e-4 * by_class) and "carbon_g" not in missing
