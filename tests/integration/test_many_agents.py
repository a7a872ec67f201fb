"""Many agents at one tuner over realistic networks: long outages, simultaneous returns, wrong clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.fleet.site import ADMIN, Workforce, draft
from tests.integration.stage import Stage, Wire, stage
from tests.processes import until
from tuner.main import utc_now

MANY = 400


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        playing.token_file.touch(0o600)
        playing.token_file.write_text(ADMIN)
        playing.start_tuner()
        yield playing


def create(played: Stage, devices: list[str], trials: int, window_s: float) -> str:
    return str(played.call("POST", "/studies", draft(devices, trials, window_s))["id"])


@pytest.mark.slow
@pytest.mark.promise(
    "all agents reconnect at once, or their clocks are hours wrong",
    "every agent is served and no trial is lost",
)
def test_all_agents_that_come_back_at_once_are_served_and_no_trial_is_lost(played: Stage) -> None:
    wire = Wire(played.tuner_port)
    with Workforce(wire.port, MANY) as agents:
        until(lambda: agents.traffic.waiting >= MANY - 8, "not all ask")
        studies = [create(played, [f"fleet-{n}"], 3, 1.0) for n in range(8)]
        until(lambda: agents.traffic.trying > 0, "nothing is tried")
        wire.cut()
        until(lambda: agents.traffic.failed > MANY, "nobody notices that the tuner is away")
        time.sleep(3.0)
        wire.mend()
        until(lambda: agents.traffic.waiting >= MANY - 8, "not all are back")
        assert played.ready()
        for study in studies:
            played.await_phase(study, "holding", 120.0)
            trials = played.trials(study)
            assert [t["number"] for t in trials] == list(range(1, len(trials) + 1))
            assert {t["state"] for t in trials} == {"completed"}
            assert sum(t["phase"] == "tuning" for t in trials) == 3
        online = [d for d in played.call("GET", "/devices") if d["online"]]
        assert len(online) == MANY
    wire.close()


@pytest.mark.promise("all agents reconnect at once, or their clocks are hours wrong")
@pytest.mark.slow
def test_agents_whose_clocks_are_hours_astray_are_tuned_and_held(played: Stage) -> None:
    with Workforce(played.tuner_port, 16) as agents:

        def astray(hours: float) -> datetime:
            return utc_now() + timedelta(hours=hours)

        for number, agent in enumerate(agents.fleet.agents):
            hours = (-5.0, 7.0, 0.0)[number % 3]
            agent.now = lambda hours=hours: astray(hours)  # type: ignore[misc]
        together = create(played, [f"fleet-{n}" for n in range(4)], 3, 0.5)
        alone = create(played, ["fleet-5"], 3, 0.5)
        for study in (together, alone):
            played.await_phase(study, "holding", 120.0)
            assert {t["state"] for t in played.trials(study)} == {"completed"}
        until(lambda: agents.traffic.holding == 5, "not every device holds")
        assert all(d["online"] for d in played.call("GET", "/devices"))
