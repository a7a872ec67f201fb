"""Flower's own strategies under FedGPO: with the same clients and config they train as without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")

from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from agents.federated.strategy import FedGPO
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.weights import arrays_of, weights_of
from tests.federated.clients import Node, Scripted, nodes, training
from tests.federated.grid import LocalGrid
from tuner.core import InvalidInput, Setting

BATCH, EPOCHS, ROUNDS = 16, 5, 3
NO_EVALUATION = {"fraction_evaluate": 0.0}
INNER: dict[str, Callable[[], Strategy]] = {
    "Bulyan": lambda: Bulyan(num_malicious_nodes=1, **NO_EVALUATION),
    "FedAdagrad": lambda: FedAdagrad(**NO_EVALUATION),
    "FedAdam": lambda: FedAdam(**NO_EVALUATION),
    "FedAvg": lambda: FedAvg(**NO_EVALUATION),
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9, **NO_EVALUATION),
    "FedMedian": lambda: FedMedian(**NO_EVALUATION),
    "FedProx": lambda: FedProx(proximal_mu=0.1, **NO_EVALUATION),
    "FedTrimmedAvg": lambda: FedTrimmedAvg(**NO_EVALUATION),
    "FedYogi": lambda: FedYogi(**NO_EVALUATION),
    "Krum": lambda: Krum(num_malicious_nodes=1, **NO_EVALUATION),
    "MultiKrum": lambda: MultiKrum(num_malicious_nodes=1, num_nodes_to_select=5, **NO_EVALUATION),
    "QFedAvg": lambda: QFedAvg(client_learning_rate=0.1, **NO_EVALUATION),
}


def everybody(of: FederatedTraining) -> Setting:
    """Return the setting with equal training for all clients."""
    kinds = [kind.name for kind in of.devices.classes]
    batches = {f"batch_size.{kind}": BATCH for kind in kinds}
    epochs = {f"local_epochs.{kind}": EPOCHS for kind in kinds}
    return {**of.space.default, "participants": len(of.fleet), **batches, **epochs}


def with_losses(answer: Node) -> Node:
    """Return a client that reports a loss, as q-FedAvg requires."""

    def told(message: Message) -> Message | None:
        reply = answer(message)
        if reply is not None and message.metadata.message_type == "train":
            reply.content["metrics"] = MetricRecord({**reply.content["metrics"], "train_loss": 1.5})
        return reply

    return told


def grid(of: FederatedTraining) -> LocalGrid:
    return LocalGrid({node: with_losses(answer) for node, answer in nodes(of).items()})


@pytest.mark.parametrize("name", INNER)
def test_it_averages_under_fedgpo_as_it_does_alone(name: str) -> None:
    of = training()
    config = ConfigRecord({"batch-size": BATCH, "local-epochs": EPOCHS})
    start = arrays_of(of.weights)
    alone = INNER[name]().start(grid(of), start, ROUNDS, train_config=config)
    tuner = Scripted(of.space, [everybody(of)])
    strategy = FedGPO(tuner, INNER[name](), wait_s=0.0)
    under = strategy.start(grid(of), arrays_of(of.weights), ROUNDS)
    assert [outcome.failed for outcome in tuner.told] == [""] * ROUNDS
    pairs = zip(weights_of(alone.arrays), weights_of(under.arrays), strict=True)
    assert all(np.allclose(a, b) for a, b in pairs)
    assert not np.allclose(weights_of(under.arrays)[0], of.weights[0]), "it has trained"


def test_clients_receive_further_config_beside_batch_and_epochs() -> None:
    of = training()
    setting = {**everybody(of), "participants": 10, "local_epochs.high": 1}
    sent = grid(of)
    tuner = Scripted(of.space, [setting])
    FedGPO(tuner, INNER["FedProx"](), wait_s=0.0).start(sent, arrays_of(of.weights), 1)
    configs = [m.content["config"] for m in sent.sent if m.metadata.message_type == "train"]
    assert len(configs) == 10 and {c["proximal-mu"] for c in configs} == {0.1}
    assert {c["local-epochs"] for c in configs} == {1, EPOCHS}


def test_the_names_it_gives_to_records_are_kept() -> None:
    of = training()
    sent = grid(of)
    inner = FedAvg(arrayrecord_key="model", configrecord_key="how", **NO_EVALUATION)
    tuner = Scripted(of.space, [everybody(of)])
    FedGPO(tuner, inner, wait_s=0.0).start(sent, arrays_of(of.weights), 1)
    message = next(m for m in sent.sent if m.metadata.message_type == "train")
    assert set(message.content) == {"model", "how"}
    assert message.content["how"]["batch-size"] == BATCH


def test_a_client_without_training_lets_no_client_train() -> None:
    of = training()
    sent = grid(of)
    inner = FedAvg(fraction_train=0.0, **NO_EVALUATION)
    tuner = Scripted(of.space, [everybody(of)])
    FedGPO(tuner, inner, wait_s=0.0).start(sent, arrays_of(of.weights), 1)
    assert not [m for m in sent.sent if m.metadata.message_type == "train"]
    assert not tuner.asked and not tuner.told, "there was no round"


def test_differential_privacy_wants_a_fixed_number_of_clients_and_is_refused() -> None:
    of = training()
    private = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, 10)
    with pytest.raises(InvalidInput, match="num_sampled_clients"):
        FedGPO(Scripted(of.space, [everybody(of)]), private)
