"""A client: it trains on its share of the digits, and reports its joules and seconds."""

from __future__ import annotations

from functools import cache

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.rounds import FederatedTraining, LocalTraining
from jouletune_bench.fleet.task import digits, trained
from jouletune_bench.fleet.weights import arrays_of, weights_of

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Return the class of this device."""
    return Message(RecordDict({"client": _client(context)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train with the batch size and the epochs of the message."""
    of, config = _federation(context), message.content["config"]
    steps = int(config["averaging-steps"]) if "averaging-steps" in config else 0
    training = LocalTraining(int(config["batch-size"]), int(config["local-epochs"]), steps)
    number = int(config["server-round"]) - 1
    own = of.fleet[_number(context)]
    began = weights_of(message.content["arrays"])
    order = (of.seed, 7, own.number, number)
    updated = trained(
        of.task, began, own.samples, training.batch, training.epochs, order, training.steps
    )
    before, after = (of.task.own_accuracy(w, own.samples) for w in (began, updated))
    cost, now = of.cost(own, training, number)
    metrics = {
        "num-examples": len(own.samples),
        "energy-j": cost.compute_j + cost.communication_j,
        "energy-measured": 0,
        "compute-j": cost.compute_j,
        "communication-j": cost.communication_j,
        "time-s": cost.seconds,
        "idle-w": own.kind.idle_w,
        "load": now.load,
        "memory": now.memory,
        "network-mbps": now.link.up_mbps,
        "data-classes": of.held(own),
        "own-gain": after - before,
    }
    records = {"arrays": arrays_of(updated), "metrics": MetricRecord(metrics)}
    return Message(RecordDict({**records, "client": _client(context)}), reply_to=message)


def _client(context: Context) -> ConfigRecord:
    return ConfigRecord({"device-class": _federation(context).fleet[_number(context)].kind.name})


def _number(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _federation(context: Context) -> FederatedTraining:
    config = context.run_config
    return _opened(int(config["clients"]), float(config["alpha"]), int(config["seed"]))


@cache
def _opened(clients: int, alpha: float, seed: int) -> FederatedTraining:
    return FederatedTraining(digits(seed), load_devices(), seed, alpha or None, clients)
