"""A real `flwr run`: separate processes, the app's clients, and a tuner on a file."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.processes import command_line, kill, proc, processes, run_to_end

pytest.importorskip("ray", reason="Flower's simulation needs ray: make test-federated")

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from agents.federated.embedded import FederationSpec, open_embedded
from agents.federated.strategy import FedGPO
from jouletune_bench.fleet.example import JOULETUNE, MARK
from jouletune_bench.fleet.rounds import FederatedTraining
from jouletune_bench.fleet.weights import arrays_of, weights_of
from tests.federated.clients import nodes, training
from tests.federated.grid import LocalGrid

PYTHON = os.environ.get("JOULETUNE_PYTHON", "")
CLIENTS, ROUNDS = 2, 3
"""So few clients that all of them train in every round."""
MANY = 8

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="JOULETUNE_PYTHON is not set: make test-federated"
)


def rounds(database: Path) -> list[dict[str, Any]]:
    """Return the rounds, by an operator's command."""
    command = ["history", "--db", f"sqlite:///{database}", "--format", "json"]
    done = run_to_end([PYTHON, "-c", JOULETUNE, *command], check=True, timeout=120)
    return sorted(json.loads(done.stdout), key=lambda row: row["number"])


def in_process(of: FederatedTraining, database: Path) -> None:
    kinds = [kind.name for kind in of.devices.classes]
    spec = FederationSpec(name="digits", space=of.space, classes=kinds, version="1")
    tuner = open_embedded(spec, database, python=PYTHON)

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": of.task.accuracy(weights_of(arrays))})

    strategy = FedGPO(tuner, FedAvg(fraction_evaluate=0.0), wait_s=0.0)
    try:
        strategy.start(LocalGrid(nodes(of)), arrays_of(of.weights), ROUNDS, evaluate_fn=evaluate)
    finally:
        tuner.close()


@pytest.mark.timeout(600)
def test_a_real_run_has_the_same_rounds_as_one_in_this_process_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    real, local = tmp_path / "real.sqlite", tmp_path / "local.sqlite"
    command = [sys.executable, "-m", "jouletune_bench.fleet.example", "--database", str(real)]
    command += ["--rounds", str(ROUNDS), "--clients", str(CLIENTS), "--python", PYTHON]
    ran = run_to_end(command, timeout=500)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    in_process(training(CLIENTS), local)
    assert len(rounds(real)) == len(rounds(local)) == ROUNDS
    for there, here in zip(rounds(real), rounds(local), strict=True):
        assert there["setting"] == here["setting"]
        for name in ("accuracy", "energy_j", "waiting_j", "energy_low_j", "round_s"):
            assert there["metrics"][name]["mean"] == pytest.approx(here["metrics"][name]["mean"])
    assert [command_line(pid) for pid in processes() if ours(pid)] == []
    assert "federated" not in ran.stderr and "participants=" in ran.stdout, "the history is shown"


@pytest.mark.timeout(900)
def test_a_goal_ends_a_real_run_whose_tuner_and_server_were_killed(tmp_path: Path) -> None:
    database = tmp_path / "goal.sqlite"
    command = [sys.executable, "-m", "jouletune_bench.fleet.example", "--database", str(database)]
    command += ["--rounds", "150", "--clients", str(MANY), "--python", PYTHON, "--goal", "0.85"]
    with (tmp_path / "first.log").open("wb") as log:
        first = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        ready = wait_for(lambda: completed(database) >= 2 or first.poll() is not None)
        assert ready and first.poll() is None, (tmp_path / "first.log").read_text()[-3000:]
        for word in (str(tmp_path / "goal.sqlite.federation"), "serverapp"):
            kill(*(p for p in processes() if word in " ".join(command_line(p)) and ours(p)))
            time.sleep(3.0)
        os.killpg(first.pid, signal.SIGTERM)
        first.wait(60)
    kill(*filter(ours, processes()))
    before = completed(database)
    ran = run_to_end(command, timeout=600)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    rows = rounds(database)
    assert before < len(rows) < before + 150, "the goal ended it"
    assert rows[-1]["metrics"]["accuracy"]["mean"] >= 0.85
    assert [row["number"] for row in rows] == [*range(1, len(rows) + 1)]


def wait_for(there: Callable[[], bool], seconds: float = 300.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if there():
            return True
        time.sleep(0.5)
    return False


def completed(database: Path) -> int:
    with suppress(sqlite3.Error), sqlite3.connect(f"file:{database}?mode=ro", uri=True) as rows:
        (count,) = rows.execute("select count(*) from trials where state = 'completed'").fetchone()
        return int(count)
    return 0


def ours(pid: int) -> bool:
    """Return whether a process is of a run that this test has started."""
    with suppress(PermissionError):
        return f"{MARK}=" in proc(pid, "environ")
    return False
