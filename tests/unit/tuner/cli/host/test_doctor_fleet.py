"""`jouletune doctor --fleet`: the lines about the tuners of a fleet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from db import open_store
from tests.builders import START, device
from tests.contracts.replicas import ONE
from tuner.cli.answers import Finding
from tuner.cli.app import main
from tuner.cli.host.doctor_fleet import examine_fleet
from tuner.main import utc_now
from tuner.wire import DeviceView, ReplicaView

OTHER = replace(ONE, id="a1", leads=False, agents={1: 80})


def seen(*replicas: ReplicaView) -> dict[str, Finding]:
    view = DeviceView(device=device(), applied=None, last_seen=START, online=False)
    return {finding.about: finding for finding in examine_fleet(replicas, [view])}


def told(*replicas: object, told_s: float = 3.0) -> list[ReplicaView]:
    return [ReplicaView.model_validate({"replica": r, "told_s": told_s}) for r in replicas]


def test_healthy_tuners_are_listed_with_the_leader() -> None:
    findings = seen(*told(replace(ONE, agents={1: 120}), OTHER))
    assert findings["tuner b1"].there and "after 250 ms; leads" in findings["tuner b1"].seen
    assert findings["leader"].seen == "b1 of 2"
    assert findings["agents"] == Finding("agents", True, "200 speak protocol 1")
    assert findings["token files"].there and findings["releases"].there
    assert findings["devices"] == Finding("devices", False, "1 registered, 1 offline", "check sim")


@pytest.mark.parametrize(
    ("changes", "about", "says"),
    [
        ({"leads": True}, "leader", "a1, b1 lead at the same time"),
        ({"version": "0.2.0"}, "releases", "0.1.0, 0.2.0"),
        ({"token_mark": "ffff"}, "token files", "a0b1, ffff"),
        ({"bus_lag_s": 4.0}, "tuner a1", "after 4000 ms"),
        ({"agents": {0: 7}}, "agents", "7 speak protocol 0"),
    ],
)
def test_faults_are_reported_with_the_next_step(
    changes: dict[str, object], about: str, says: str
) -> None:
    finding = seen(*told(ONE, replace(OTHER, **changes)))[about]  # type: ignore[arg-type]
    assert says in finding.seen and not finding.there and finding.hint


def test_a_tuner_that_has_ended_leads_nothing() -> None:
    findings = seen(*told(ONE, told_s=90.0), *told(OTHER))
    assert "no report for 90 s" in findings["tuner b1"].seen
    assert findings["leader"].seen.startswith("no leader") and not findings["leader"].there


def test_the_command_reads_it_from_a_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 't.sqlite'}"
    store = open_store(url)
    store.replicas.tell(replace(ONE, seen_at=utc_now()))
    store.close()
    assert main(["doctor", "--fleet", "--json", "--db", url]) == 0
    findings = {f["about"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["leader"]["seen"] == "b1 of 1"
    assert findings["database"]["there"]
