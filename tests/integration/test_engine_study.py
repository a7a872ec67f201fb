"""A speculation study on an engine with only its file: at the end its own table follows the load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.stage import stage
from tests.processes import until
from tests.unit.agents.workloads.http.test_engines import start

STEP_MS, CROWD_MS = 4.0, 1.2
"""At one request three drafted tokens nearly double the tokens per second; at 32 they cost a quarter."""


@pytest.mark.long
@pytest.mark.timeout(750)
def test_vllm_holds_a_table_by_the_load_and_goes_back_to_its_default(tmp_path: Path) -> None:
    running = start("vllm", tmp_path)
    engine = running.engine
    engine.step_ms, engine.crowd_ms = STEP_MS, CROWD_MS
    running.side.close()
    with stage(tmp_path) as scene:
        scene.start_tuner()
        scene.start_agent("cpu", f"service:{running.file}")
        study = scene.create(
            policy="speculation",
            objective="maximize throughput_per_s",
            terms={"trials": 16, "window_s": 1.5, "max_window_s": 3.0},
        )
        scene.await_phase(study, "holding", deadline_s=450.0)
        view = scene.call("GET", f"/studies/{study}")
        rows = view["plan"]["rows"]
        assert view["plan"]["by"] == "decoding_requests" and len(rows) >= 2, view["phase_why"]
        lengths = [row["setting"]["speculation_length"] for row in rows]
        assert lengths[0] > lengths[-1], lengths
        until(lambda: list(engine.table.values()) == lengths, lambda: f"{engine.table} {lengths}")
        starts = engine.starts
        tuned = [t for t in scene.trials(study) if t["phase"] == "tuning"]
        confirmed = len(scene.trials(study)) - len(tuned)
        assert starts <= confirmed + 0.75 * len(tuned) + 2, "one start measures several lengths"
        scene.call("POST", f"/studies/{study}/stop", {})
        until(lambda: engine.table == {1: 3}, lambda: f"not put back: {engine.table}")
        assert engine.starts == starts + 1
    engine.close()
