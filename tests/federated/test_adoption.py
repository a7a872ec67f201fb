"""The adoption of FedGPO by docs/policies/fedgpo.md, applied to an ordinary app of Flower."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest

from tests.processes import run_to_end

pytest.importorskip("flwr", reason="Flower has an environment of its own: make test-federated")

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.app import Context as RunContext

from jouletune_bench.fleet.example import JOULETUNE
from jouletune_bench.fleet.weights import arrays_of, weights_of
from tests.federated.clients import Node
from tests.federated.grid import LocalGrid

PYTHON = os.environ.get("JOULETUNE_PYTHON", "")
PAGE = Path(__file__).parents[2] / "docs/policies/fedgpo.md"
ROUNDS = 4
SERVER = """
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=INITIAL,
        num_rounds=int(context.run_config["num-server-rounds"]),
        evaluate_fn=EVALUATE,
    )
"""
"""The server of Flower's template. INITIAL and EVALUATE are the app's model and its test."""
CLOSED = "    tuner.close()\n"

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="JOULETUNE_PYTHON is not set: make test-federated"
)


def blocks() -> list[str]:
    """Return the page's Python, the changed line first."""
    section = PAGE.read_text("utf-8").partition("## Adopt it in a Flower app")[2]
    code_blocks = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert len(code_blocks) == 2, "the changed line, and what opens the tuner"
    return code_blocks


def adopted(database: Path) -> str:
    """Return the server after the page's change: one line, with a tuner opened before and closed after."""
    changed, opened = blocks()
    new, _, old = (part.strip() for part in changed.partition("# was:"))
    before = f"    strategy = {old}\n"
    assert SERVER.count(before) == 1
    opened = opened.replace('"federation.sqlite"', repr(str(database)))
    opened = re.sub(r'python="[^"]+"', f"python={PYTHON!r}", opened)
    start = SERVER.replace(before, f"    {new}\n")
    return start.replace(f"    {new}\n", f"{indent(opened, '    ')}    {new}\n") + CLOSED


def client(kind: str, extra: dict[str, float]) -> Node:
    """Return a client that halves its distance to the optimum in each epoch; it reports its class, too."""

    def answer(message: Message) -> Message:
        if message.metadata.message_type == "query":
            raise NotImplementedError(f"a usual app has no answer, also of class {kind}")
        config = message.content["config"]
        steps = int(config["local-epochs"])
        assert int(config["batch-size"]) > 0
        weights = tuple(w + (1.0 - w) * (1.0 - 0.9**steps) for w in weights_of(arrays_in(message)))
        metrics = MetricRecord({"num-examples": 10, **{k: v * steps for k, v in extra.items()}})
        content = RecordDict({"arrays": arrays_of(weights), "metrics": metrics})
        return Message(content, reply_to=message)

    return answer


def arrays_in(message: Message) -> ArrayRecord:
    arrays: ArrayRecord = message.content["arrays"]
    return arrays


def evaluated(_: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": float(np.mean(weights_of(arrays)[0]))})


def trials(database: Path) -> list[dict[str, Any]]:
    command = ["history", "--workload", "federated", "--db", f"sqlite:///{database}"]
    ran = run_to_end(
        [PYTHON, "-c", JOULETUNE, *command, "--format", "json"], timeout=120, check=True
    )
    return sorted(json.loads(ran.stdout), key=lambda row: row["number"])


def run(database: Path, metrics: dict[str, float]) -> list[dict[str, Any]]:
    scope: dict[str, Any] = {"INITIAL": arrays_of((np.zeros(3),)), "EVALUATE": evaluated}
    exec(compile(adopted(database), "server_app.py", "exec"), scope)
    grid = LocalGrid({node: client("high", metrics) for node in range(60)})
    context = RunContext(1, 0, {}, RecordDict(), {"num-server-rounds": ROUNDS})
    scope["app"](grid, context)
    return trials(database)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("joules", [True, False], ids=["joules told", "no joules told"])
def test_an_app_made_by_the_page_gets_and_reports_its_rounds(joules: bool, tmp_path: Path) -> None:
    rounds = run(tmp_path / "rounds.sqlite", {"energy-j": 3.0} if joules else {})
    assert [row["state"] for row in rounds] == ["completed"] * ROUNDS
    assert [row["number"] for row in rounds] == list(range(1, ROUNDS + 1))
    accuracies = [row["metrics"]["accuracy"]["mean"] for row in rounds]
    assert accuracies == sorted(accuracies) and accuracies[-1] > 0.2
    assert [("energy_j" in row["metrics"]) for row in rounds] == [joules] * ROUNDS


@pytest.mark.timeout(300)
def test_flowers_process_loads_neither_sql_nor_torch() -> None:
    loads = "import sys, agents.federated.strategy, agents.federated.embedded; print(*sys.modules)"
    ran = run_to_end([sys.executable, "-W", "ignore", "-c", loads], check=True)
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert "agents" in loaded and not loaded & {"torch", "botorch", "scipy", "alembic", "db"}
