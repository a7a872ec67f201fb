"""The strategy over a grid within this process, with real training of the clients."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, Result

from agents.federated.strategy import FedGPO
from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.task import digits
from jouletune_bench.fleet.weights import arrays_of, weights_of
from tests.federated.clients import (
    Node,
    Scripted,
    failing,
    nodes,
    training,
)
from tests.federated.grid import LocalGrid
from tuner.core import JOULES_PER_KWH, HourRow, Origin, Setting, TimeSeries

NO_EVALUATION = {"fraction_evaluate": 0.0}


def setting(of: FederatedTraining, k: int = 10, **epochs: int) -> Setting:
    changed = {f"local_epochs.{kind}": e for kind, e in epochs.items()}
    return {**of.space.default, "participants": k, **changed}


def evaluated(of: FederatedTraining) -> Callable[[int, ArrayRecord], MetricRecord]:
    def accuracy(_: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": of.task.accuracy(weights_of(arrays))})

    return accuracy


def ran(
    of: FederatedTraining, grid: LocalGrid, tuner: Scripted, rounds: int = 3, seed: int = 0
) -> Result:
    strategy = FedGPO(tuner, FedAvg(**NO_EVALUATION), wait_s=0.0, seed=seed)
    start = arrays_of(of.weights)
    return strategy.start(grid, start, num_rounds=rounds, evaluate_fn=evaluated(of))


def test_a_round_is_reported_with_its_cost_and_the_accuracy_after_it() -> None:
    of = training()
    tuner = Scripted(of.space, [setting(of)])
    result = ran(of, LocalGrid(nodes(of)), tuner)
    assert len(tuner.told) == 3
    for outcome, number in zip(tuner.told, (1, 2, 3), strict=True):
        shown = outcome.metrics
        assert shown["accuracy"] == result.evaluate_metrics_serverapp[number]["accuracy"]
        kinds = [shown[f"energy_{kind}_j"] for kind in ("high", "mid", "low")]
        assert shown["energy_j"] == pytest.approx(math.fsum(kinds)) and shown["energy_j"] > 0.0
        assert shown["waiting_j"] > 0.0 and shown["round_s"] > 0.0
        assert (shown["participated"], shown["failed"]) == (10.0, 0.0)
        assert outcome.origin is Origin.ESTIMATED and not outcome.failed
    assert tuner.told[1].context["accuracy"] == tuner.told[0].metrics["accuracy"]
    assert tuner.told[1].metrics["accuracy_gain"] == pytest.approx(
        tuner.told[1].metrics["accuracy"] - tuner.told[0].metrics["accuracy"]
    )
    assert {"load.high", "network_mbps.low"} <= set(tuner.asked[2])


def test_metered_joules_are_measured_and_nothing_is_added_to_them() -> None:
    of = training()

    def metered(answer: Node) -> Node:
        def told(message: Message) -> Message | None:
            reply = answer(message)
            if reply is not None and message.metadata.message_type == "train":
                metrics = {**reply.content["metrics"], "energy-j": 2.0, "energy-measured": 1}
                reply.content["metrics"] = MetricRecord(metrics)
            return reply

        return told

    tuner = Scripted(of.space, [setting(of)])
    ran(of, LocalGrid({n: metered(a) for n, a in nodes(of).items()}), tuner, rounds=1)
    (outcome,) = tuner.told
    assert outcome.origin is Origin.MEASURED and outcome.metrics["energy_j"] == 20.0
    assert "waiting_j" not in outcome.metrics


def test_grams_are_joules_at_the_series_value_of_the_rounds_hour() -> None:
    of = training()
    hours = iter(range(3))
    strategy = FedGPO(
        tuner := Scripted(of.space, [setting(of)]),
        FedAvg(**NO_EVALUATION),
        wait_s=0.0,
        g_per_kwh=TimeSeries(name="grid", rows=(HourRow(500.0, "1-2"), HourRow(100.0))),
        now=lambda: datetime(2026, 3, 2, next(hours), tzinfo=UTC),
    )
    strategy.start(LocalGrid(nodes(of)), arrays_of(of.weights), num_rounds=3)
    assert len(tuner.told) == 3
    for outcome, g_per_kwh in zip(tuner.told, (100.0, 500.0, 100.0), strict=True):
        kwh = outcome.metrics["energy_j"] / JOULES_PER_KWH
        assert outcome.metrics["carbon_g"] == pytest.approx(kwh * g_per_kwh)


def test_without_one_clients_joules_none_are_reported() -> None:
    of = training()
    answers = nodes(of)
    first = next(iter(answers))
    usual = answers[first]

    def silent(message: Message) -> Message | None:
        reply = usual(message)
        if reply is not None and message.metadata.message_type == "train":
            reply.content["metrics"] = MetricRecord({"num-examples": 5})
        return reply

    answers[first] = silent
    tuner = Scripted(of.space, [setting(of, k=20)])
    ran(of, LocalGrid(answers), tuner, rounds=1)
    (outcome,) = tuner.told
    assert "energy_j" not in outcome.metrics and outcome.metrics["participated"] == 20.0
    assert not outcome.failed


def test_with_drop_outs_nan_and_wrong_shapes_the_training_goes_on_and_nothing_is_poisoned() -> None:
    of = training()
    tuner = Scripted(of.space, [setting(of, k=20, high=5, mid=5, low=5)])
    answers = failing(nodes(of), drop=0.2, nan=0.05, misshapen=1003)
    result = ran(of, LocalGrid(answers), tuner, rounds=15)
    assert len(tuner.told) == 15 and not any(o.failed for o in tuner.told)
    assert all(np.isfinite(w).all() for w in weights_of(result.arrays))
    assert tuner.told[-1].metrics["accuracy"] > 0.5
    lost = [20.0 - o.metrics["participated"] for o in tuner.told]
    assert 2.0 < sum(lost) / 15 < 8.0
    assert sum(o.metrics["failed"] for o in tuner.told) > 10.0


def test_a_round_without_a_sound_reply_has_failed_and_the_next_one_goes_on() -> None:
    of = training()
    answers = nodes(of)

    def broken_first(answer: Node) -> Node:
        def told(message: Message) -> Message | None:
            config = message.content.get("config")
            if config is not None and config["server-round"] == 1:
                raise RuntimeError("not today")
            return answer(message)

        return told

    tuner = Scripted(of.space, [setting(of)])
    ran(of, LocalGrid({n: broken_first(a) for n, a in answers.items()}), tuner, rounds=2)
    first, second = tuner.told
    assert "none of 10 replies" in first.failed and not second.failed
    assert second.metrics["accuracy"] > first.metrics["accuracy"]


def test_with_fewer_clients_than_requested_the_present_ones_train() -> None:
    of = training(clients=5)
    tuner = Scripted(of.space, [setting(of, k=50)])
    ran(of, LocalGrid(nodes(of)), tuner, rounds=1)
    assert tuner.told[0].metrics["participated"] == 5.0


def test_clients_that_come_late_are_waited_for() -> None:
    of = training(clients=12)
    grid = LocalGrid({})
    coming = iter(nodes(of).items())

    def one_more() -> list[int]:
        grid._nodes.update([*itertools.islice(coming, 5)])
        return list(grid._nodes)

    grid.get_node_ids = one_more  # type: ignore[method-assign]
    tuner = Scripted(of.space, [setting(of, k=10)])
    strategy = FedGPO(tuner, FedAvg(**NO_EVALUATION), wait_s=0.2)
    strategy.start(grid, arrays_of(of.weights), num_rounds=1)
    assert tuner.told[0].metrics["participated"] == 10.0


def test_a_round_equals_the_benchs_training_with_the_same_clients() -> None:
    of = training()
    alone = training()
    at = setting(of, k=20, high=5, mid=5, low=5)
    tuner = Scripted(of.space, [at])
    result = ran(of, LocalGrid(nodes(of)), tuner, rounds=2)
    rounds = [alone.run(at).metrics for _ in range(2)]
    for outcome, metrics in zip(tuner.told, rounds, strict=True):
        for name in ("energy_j", "waiting_j", "energy_low_j", "round_s", "carbon_g", "accuracy"):
            if name in outcome.metrics:
                assert outcome.metrics[name] == pytest.approx(metrics[name]), name
    averaged = weights_of(result.arrays)
    assert all(np.allclose(a, b) for a, b in zip(averaged, alone.weights, strict=True))


def test_the_same_seed_chooses_the_same_clients() -> None:
    of = training()

    def chosen(seed: int) -> list[list[int]]:
        grid = LocalGrid(nodes(of))
        ran(of, grid, Scripted(of.space, [setting(of)]), rounds=2, seed=seed)
        trains = [m for m in grid.sent if m.metadata.message_type == "train"]
        return [[m.metadata.dst_node_id for m in trains[i : i + 10]] for i in (0, 10)]

    assert chosen(0) == chosen(0) != chosen(1)
    assert chosen(0)[0] != chosen(0)[1]


def test_any_strategy_averages_underneath() -> None:
    of = training()
    tuner = Scripted(of.space, [setting(of)])
    strategy = FedGPO(tuner, FedMedian(**NO_EVALUATION), wait_s=0.0)
    result = strategy.start(LocalGrid(nodes(of)), arrays_of(of.weights), num_rounds=1)
    assert result.arrays is not None and len(tuner.told) == 1
    assert "accuracy" not in tuner.told[0].metrics, "nobody evaluated"


def test_the_clients_own_evaluation_gives_the_accuracy_without_another_one() -> None:
    of = training()

    def judging(answer: Node) -> Node:
        def told(message: Message) -> Message | None:
            if message.metadata.message_type != "evaluate":
                return answer(message)
            metrics = MetricRecord({"accuracy": 0.25, "num-examples": 4})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

        return told

    tuner = Scripted(of.space, [setting(of)])
    grid = LocalGrid({n: judging(a) for n, a in nodes(of).items()})
    FedGPO(tuner, wait_s=0.0).start(grid, arrays_of(of.weights), num_rounds=2)
    assert [o.metrics["accuracy"] for o in tuner.told] == pytest.approx([0.25, 0.25])


def test_a_server_that_fails_in_mid_training_still_reports_the_round_it_was_in() -> None:
    of = training()
    tuner = Scripted(of.space, [setting(of)])

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        if number == 2:
            raise RuntimeError("no test data")
        return evaluated(of)(number, arrays)

    strategy = FedGPO(tuner, FedAvg(**NO_EVALUATION), wait_s=0.0)
    with pytest.raises(RuntimeError, match="no test data"):
        strategy.start(LocalGrid(nodes(of)), arrays_of(of.weights), 3, evaluate_fn=evaluate)
    assert len(tuner.told) == 2


def test_the_steps_between_two_averagings_reach_the_clients_and_their_skew_is_reported() -> None:
    of, alone = (FederatedTraining(digits(0), load_devices(), 0, 0.1, 20, (1, 5)) for _ in range(2))
    at: Setting = {**of.space.default, "participants": 20, "averaging_steps": 5}
    grid, tuner = LocalGrid(nodes(of)), Scripted(of.space, [at])
    ran(of, grid, tuner, rounds=2)
    sent = [m for m in grid.sent if m.metadata.message_type == "train"]
    assert {m.content["config"]["averaging-steps"] for m in sent} == {5}
    first, second = (alone.run(at).metrics for _ in range(2))
    assert tuner.told[1].metrics["skew_loss"] == pytest.approx(second["skew_loss"])
    assert tuner.told[0].metrics["energy_j"] == pytest.approx(first["energy_j"])


def test_a_reached_goal_ends_the_training_with_its_totals() -> None:
    of = training()
    tuner = Scripted(of.space, [setting(of)], rounds=2)
    result = ran(of, LocalGrid(nodes(of)), tuner, rounds=9)
    assert len(tuner.told) == 2
    assert [*result.evaluate_metrics_serverapp] == [0, 1, 2]
    assert [*result.train_metrics_clientapp] == [1, 2]
    last = result.evaluate_metrics_serverapp[2]["accuracy"]
    assert of.task.accuracy(weights_of(result.arrays)) == last == tuner.told[-1].metrics["accuracy"]


def test_clients_that_do_not_come_are_waited_for_once() -> None:
    of = training(clients=5)
    tuner = Scripted(of.space, [setting(of, k=50)])
    strategy = FedGPO(tuner, FedAvg(**NO_EVALUATION), wait_s=0.5)
    began = time.monotonic()
    strategy.start(LocalGrid(nodes(of)), arrays_of(of.weights), num_rounds=4)
    assert time.monotonic() - began < 2.0 and len(tuner.told) == 4
