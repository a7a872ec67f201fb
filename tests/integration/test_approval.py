"""Studies that need approval, with real processes and real kills: nothing is held without it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.stage import QUICK, Stage, batch_size, start
from tests.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DRAFT = {**QUICK, "terms": {**QUICK["terms"], "safety": "advise"}}


def view(played: Stage, study: str) -> dict[str, Any]:
    return dict(played.call("GET", f"/studies/{study}"))


def level(played: Stage) -> str:
    return str(played.call("GET", "/devices")[0]["applied"]["level"])


def registered(played: Stage) -> int:
    """Return the number of the agent's registrations: one per start."""
    return (played.folder / "agent.log").read_text().count("event=registered")


def kinds(played: Stage, study: str) -> list[str]:
    return [event["kind"] for event in played.call("GET", f"/events?study={study}")]


@pytest.mark.promise(
    "a study needs approval, or one device goes first",
    "nothing is held without approval; other devices wait until the canary's windows "
    "confirm it, through every crash",
)
def test_a_proposal_survives_every_crash_and_is_held_only_after_it_is_approved(
    played: Stage,
) -> None:
    toy = start(played)
    study = played.create(**DRAFT)
    played.await_phase(study, "proposed")
    until(lambda: level(played) == "original", "the device is not put back")
    assert batch_size(toy) == 1
    proposed, trials = view(played, study), played.trials(study)
    wanted = proposed["plan"]["rows"][0]["setting"]["batch_size"]
    assert wanted != 1, "there is something to hold"

    played.kill("tuner")
    played.kill("agent")
    played.start_tuner()
    for starts in (2, 3):
        played.start_agent("cpu", f"http://127.0.0.1:{toy}")
        until(lambda count=starts: registered(played) == count, lambda: played.log("agent"))  # type: ignore[misc]
        if starts == 2:
            played.kill("agent")
    assert view(played, study)["revision"] == proposed["revision"]
    assert (played.trials(study), batch_size(toy)) == (trials, 1)

    body = {"why": "the bill is high", "who": "mallory", "revision": proposed["revision"]}
    assert played.call("POST", f"/studies/{study}/approve", body)["phase"] == "holding"
    until(lambda: batch_size(toy) == wanted, lambda: f"not held: {played.log('agent')}")
    until(lambda: level(played) == "hold", "the tuner is not told of the hold")
    last = played.call("GET", f"/studies/{study}/revisions")[-1]
    assert (last["who"], last["phase"]) == ("admin", "holding")
    assert "the bill is high" in last["why"]


def test_a_new_limit_withdraws_a_proposal_and_a_rejection_ends_the_study(played: Stage) -> None:
    toy = start(played)
    study = played.create(**DRAFT)
    played.await_phase(study, "proposed")
    seen = view(played, study)["revision"]
    looser = {"constraints": ["latency_mean_ms <= 3x baseline"]}
    assert played.call("PUT", f"/studies/{study}/constraints", looser)["phase"] == "tuning"
    assert "withdrawn" in kinds(played, study)
    played.await_phase(study, "proposed")
    assert view(played, study)["revision"] > seen
    with pytest.raises(AssertionError, match=f"not revision {seen}"):
        played.call("POST", f"/studies/{study}/approve", {"revision": seen})
    assert played.call("POST", f"/studies/{study}/reject", {})["phase"] == "stopped"
    until(lambda: level(played) == "original", "the device is not put back")
    assert batch_size(toy) == 1
    assert "holding" not in kinds(played, study)
    assert played.create(**DRAFT) != study, "its device is free"
