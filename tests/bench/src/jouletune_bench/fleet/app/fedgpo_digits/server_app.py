"""The server: FedAvg, whose rounds FedGPO sets."""

from __future__ import annotations

import sys
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from agents.federated.embedded import FederationSpec, open_embedded
from agents.federated.strategy import FedGPO, clients_there
from jouletune_bench.fleet.devices import load_devices
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.task import digits
from jouletune_bench.fleet.weights import arrays_of, weights_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until the goal, or for some rounds, each set by a tuner on the database of the run's config."""
    config = context.run_config
    seed, devices = int(config["seed"]), load_devices()
    goal = float(config["goal"])
    alpha, clients = float(config["alpha"]), int(config["clients"])
    of = FederatedTraining(digits(seed), devices, seed, alpha or None, clients)
    kinds = [kind.name for kind in devices.classes]
    spec = FederationSpec(name="digits", classes=kinds, clients=clients_there(grid), version="1")
    intensity = dict.fromkeys(kinds, devices.intensity_g_per_kwh)
    tuner = open_embedded(
        spec,
        Path(str(config["database"] or "federation.sqlite")),
        objective=str(config["objective"]),
        constraints=[f"accuracy >= {goal}"] if goal else [],
        seed=seed,
        python=str(config["python"] or sys.executable),
    )

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": of.task.accuracy(weights_of(arrays))})

    strategy = FedGPO(tuner, FedAvg(fraction_evaluate=0.0), seed=seed, g_per_kwh=intensity)
    try:
        strategy.start(
            grid,
            arrays_of(of.weights),
            num_rounds=int(config["num-server-rounds"]),
            evaluate_fn=evaluate,
        )
    finally:
        tuner.close()
