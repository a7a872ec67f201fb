"""An operator's view of a running fleet, and its stop."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.stage import JOULETUNE, QUICK, Stage, batch_size, start
from tests.processes import run_to_end, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LONG = {**QUICK, "terms": {"trials": 3, "window_s": 100.0, "max_window_s": 100.0}}


def ask(played: Stage, *arguments: str) -> tuple[int, str, str]:
    """Run a command against the tuner to its end."""
    where = ("--tuner", f"http://127.0.0.1:{played.tuner_port}")
    token = ("--token-file", str(played.token_file))
    done = run_to_end(
        [*JOULETUNE, *arguments, *where, *token], timeout=100.0, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.promise(
    "an operator stops everything",
    "`stop-all`, on a host `agent revert --stay`, as root `actuator restore --all "
    "--stay`: every device is at its original, also after restarts, until `--lift`",
)
def test_a_stopped_fleet_is_at_its_original_through_a_crash_until_it_is_lifted(
    played: Stage,
) -> None:
    toy = start(played)
    study = played.create(**QUICK)
    played.await_phase(study, "holding")
    until(lambda: batch_size(toy) != 1, "nothing is held")
    held, trials = batch_size(toy), len(played.trials(study))

    code, out, err = ask(played, "stop-all", "--yes", "--why", "smoke")
    assert code == 0, out + err
    assert batch_size(toy) == 1, "it says so only once the device is back"
    assert "is at its original setting" in out
    played.kill("tuner")
    played.start_tuner()
    played.kill("agent")
    played.start_agent("cpu", f"http://127.0.0.1:{toy}")
    code, out, err = ask(played, "stop-all", "--yes")
    assert (code, batch_size(toy)) == (0, 1), out + err
    view = played.call("GET", f"/studies/{study}")
    assert (view["phase"], view["stopped"]) == ("holding", True), "the study stays as it is"

    assert ask(played, "stop-all", "--lift")[0] == 0
    until(lambda: batch_size(toy) == held, "what was held is not taken up again")
    assert played.phase(study) == "holding"
    assert len(played.trials(study)) == trials, "nothing had to be measured anew"


def test_a_trial_under_way_ends_when_the_fleet_is_stopped(played: Stage) -> None:
    toy = start(played)
    study = played.create(**LONG)
    until(lambda: bool(played.trials(study)), "no trial begins")
    code, out, err = ask(played, "stop-all", "--yes")
    assert code == 0, out + err
    assert batch_size(toy) == 1
    assert [t["state"] for t in played.trials(study)] == ["aborted"]
    assert played.phase(study) == "baseline"
    played.call("DELETE", "/stop")
    until(lambda: len(played.trials(study)) == 2, "the study does not go on")


@pytest.mark.promise("an agent dies during a hold")
def test_a_killed_agent_is_offline_after_its_lease_and_can_be_forgotten(played: Stage) -> None:
    start(played)
    study = played.create(**QUICK)
    device = played.device()
    assert played.call("GET", "/devices")[0]["online"] is True
    played.kill("agent")
    until(lambda: not played.call("GET", "/devices")[0]["online"], "it still counts as online")
    assert played.call("GET", f"/studies/{study}")["offline"] == [device]

    code, out, _ = ask(played, "stop-all", "--yes")
    assert code == 1, "nobody knows how it is set"
    assert f"{device} OFFLINE since " in out
    played.call("POST", f"/studies/{study}/stop", {})
    assert ask(played, "device", "forget", device)[0] == 0
    assert played.call("GET", "/devices") == []
