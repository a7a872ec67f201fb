"""The promises about crashes, with real processes and real kills."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

import httpx2
import psutil
import pytest

from tests.integration.stage import JOULETUNE, QUICK, Stage, Wire, batch_size, start
from tests.processes import proc, until

pytestmark = pytest.mark.slow

LONGER = QUICK | {"terms": {"trials": 4, "window_s": 3.0, "max_window_s": 4.0}}


def assert_whole(trials: list[dict[str, Any]]) -> None:
    """Check that no trial is lost or doubled: numbers are consecutive, and all have ended."""
    assert [t["number"] for t in trials] == list(range(1, len(trials) + 1))
    assert {t["state"] for t in trials} <= {"completed", "contaminated", "inconclusive"}


@pytest.mark.promise(
    "the tuner dies",
    "agents keep their holds; the study continues; no trial is lost or doubled",
)
def test_a_tuner_killed_in_mid_study_continues_where_it_was(played: Stage) -> None:
    start(played)
    study = played.create(**QUICK)
    for count in (1, 3, 5):
        until(lambda count=count: len(played.trials(study)) > count, "no progress")  # type: ignore[misc]
        played.kill("tuner")
        played.start_tuner()
    played.await_phase(study, "holding")
    trials = played.trials(study)
    assert_whole(trials)
    assert sum(t["phase"] == "tuning" for t in trials) == 3


def report(played: Stage, study: str) -> str:
    """Return a study's report without its periods, which end at the present."""
    told = played.call("GET", f"/studies/{study}/report")
    del told["bill"]["periods"]
    return json.dumps(told, sort_keys=True)


def test_a_hold_outlives_agent_actuator_and_tuner(played: Stage) -> None:
    toy = start(played)
    study = played.create(**QUICK)
    played.await_phase(study, "holding")
    until(
        lambda: batch_size(toy) != 1,
        lambda: f"no winner: {played.call('GET', f'/studies/{study}/report')}",
    )
    held = batch_size(toy)
    assert_light(played)
    before = report(played, study)

    played.kill("tuner")
    for _ in range(20):
        assert batch_size(toy) == held
        time.sleep(0.1)
    played.start_tuner()
    assert played.phase(study) == "holding"
    after = report(played, study)
    assert after == before, "the tuner does not remember what it was asked"
    assert batch_size(toy) == held

    played.kill("tuner")
    played.kill("agent")
    assert batch_size(toy) == held
    httpx2.put(f"http://127.0.0.1:{toy}/knobs", json={"batch_size": 1})
    played.start_agent("cpu", f"http://127.0.0.1:{toy}")
    until(lambda: batch_size(toy) == held, lambda: f"not taken up: {played.log('agent')}")
    until(lambda: "event=hold_in_force" in played.log("agent"), lambda: played.log("agent"))

    played.kill("toy")
    played.start_toy(toy)
    until(lambda: batch_size(toy) == held, lambda: f"left alone: {played.log('agent')}")


def assert_light(played: Stage) -> None:
    """Check that a holding agent without trials takes under 1 % of a core and under 80 MB."""
    agent = psutil.Process(played.processes["agent"].pid)
    time.sleep(3.0)  # its first window of the hold
    before = sum(agent.cpu_times()[:2])
    time.sleep(6.0)
    used = sum(agent.cpu_times()[:2]) - before
    maps = proc(agent.pid, "maps")
    assert agent.memory_info().rss < 80e6
    assert used <= 0.06, f"{used} s of CPU in 6 s"
    assert "torch" not in maps
    assert "sqlalchemy" not in maps


@pytest.mark.promise("an agent dies during a trial")
def test_an_agent_killed_in_mid_trial_gets_the_same_trial_again(played: Stage) -> None:
    toy = start(played)
    study = played.create(**LONGER)
    until(lambda: batch_size(toy) != 1, "no trial away from the baseline")
    running = played.trials(study)[-1]
    played.kill("agent")
    assert played.trials(study)[-1]["state"] == "running"
    played.start_agent("cpu", f"http://127.0.0.1:{toy}")
    until(lambda: played.trials(study)[running["number"] - 1]["attempt"] == 2, "no second attempt")
    again = played.trials(study)[running["number"] - 1]
    assert again["setting"] == running["setting"]
    ended = running["number"] - 1
    until(lambda: played.trials(study)[ended]["state"] == "completed", "the trial does not end")
    played.call("POST", f"/studies/{study}/stop", {})
    until(lambda: batch_size(toy) == 1, "the original is not restored")


def test_a_killed_agent_leaves_a_journal_by_which_revert_restores(played: Stage) -> None:
    toy = start(played)
    study = played.create(**LONGER)
    until(lambda: batch_size(toy) != 1, "no trial away from the baseline")
    played.kill("agent")
    assert batch_size(toy) != 1
    played.spawn(
        "revert", [*JOULETUNE, "agent", "revert", "--config", f"{played.folder}/agent.toml"]
    )
    assert played.processes["revert"].wait(60) == 0, played.log("revert")
    assert batch_size(toy) == 1
    played.start_agent("cpu", f"http://127.0.0.1:{toy}")
    played.await_phase(study, "paused")
    assert "an operator reverted" in played.call("GET", f"/studies/{study}")["phase_why"]
    assert batch_size(toy) == 1


@pytest.mark.promise("the agent's journal is damaged, or its folder is deleted while it runs")
def test_an_agent_whose_state_folder_is_deleted_in_mid_trial_puts_back(played: Stage) -> None:
    toy = start(played)
    study = played.create(**LONGER)
    until(lambda: batch_size(toy) != 1, "no trial away from the baseline")
    shutil.rmtree(played.folder / "agent")
    played.call("POST", f"/studies/{study}/stop", {})
    until(lambda: batch_size(toy) == 1, lambda: f"left as it was tried: {played.log('agent')}")
    assert "event=journal_vanished" in played.log("agent")


@pytest.mark.promise(
    "the network fails, or a proxy answers instead of the tuner",
    "the agent finishes its trial and keeps reports until the tuner itself confirms "
    "them; a lost end of a hold is reported again",
)
def test_a_cut_wire_loses_nothing(played: Stage) -> None:
    wire = Wire(played.tuner_port)
    played.agent_port = wire.port
    try:
        start(played)
        study = played.create(**QUICK)
        until(lambda: len(played.trials(study)) >= 3, "no progress")
        wire.cut()
        before = played.trials(study)
        time.sleep(5.0)  # well over the lease of 3 s
        assert len(played.trials(study)) == len(before)
        wire.mend()
        played.await_phase(study, "holding")
        assert_whole(played.trials(study))
        # An assignment lost with the wire is given out once more after its lease.
        assert all(t["attempt"] <= 2 for t in played.trials(study))
    finally:
        wire.close()
