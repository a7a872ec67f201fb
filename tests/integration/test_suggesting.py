"""A complete study with suggestions from processes beside the tuner, which may be killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.stage import Stage, stage
from tests.processes import children, command_line, gone, kill, proc, until


def tuned(played: Stage) -> None:
    """Tune a simulated device by two policies; the tuner itself loads none of their libraries."""
    played.start_tuner()
    played.start_agent("simulated:orin")
    study = played.create(
        policy="polythrottle", constraints=["latency_p99_ms <= 1.5x baseline"],
        terms={"trials": 3},
    )  # fmt: skip
    played.await_phase(study, "holding", 200.0)
    trials = played.trials(study)
    assert sum(t["phase"] == "tuning" for t in trials) == 3
    played.call("POST", f"/studies/{study}/stop", {})
    control = played.create(policy="sobol", constraints=[], terms={"trials": 2})
    played.await_phase(control, "holding", 200.0)
    maps = proc(played.processes["tuner"].pid, "maps")
    assert "torch" not in maps and "scipy" not in maps


@pytest.mark.slow
@pytest.mark.promise(
    "the process that computes a suggestion dies, hangs or is slow",
    "another process computes it; other studies do not wait; the suggestion does not "
    "depend on the process",
)
def test_a_study_is_tuned_although_its_workers_are_killed(tmp_path: Path) -> None:
    killed: list[int] = []
    with stage(tmp_path, 'suggest = "local:1"\n') as played:

        def kill_at_work() -> bool:
            for child in children(played.processes["tuner"].pid):
                if "tuner.suggesting.worker" in command_line(child):
                    kill(child)
                    killed.append(child)
            return bool(killed)

        played.start_tuner()
        played.start_agent("simulated:orin")
        study = played.create(policy="polythrottle", constraints=[], terms={"trials": 3})
        until(kill_at_work, "nobody works on the study")
        played.await_phase(study, "holding", 200.0)
        assert "ended (-9)" in played.log("tuner")
        assert sum(t["phase"] == "tuning" for t in played.trials(study)) == 3
        tuner = played.processes["tuner"]
        (worker,) = children(tuner.pid)
        os.kill(tuner.pid, signal.SIGKILL)  # without its group: workers see their input end
        until(lambda: gone(worker), "it outlives the tuner")


@pytest.mark.slow
def test_a_tuner_with_worker_processes_needs_no_torch(tmp_path: Path) -> None:
    with stage(tmp_path, 'suggest = "local:1"\n') as played:
        tuned(played)
