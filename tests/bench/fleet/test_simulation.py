"""`python -m tests.bench fleet`: a separate tuner, agents over real connections, figures at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from db import open_store
from tests.bench.commands import commands
from tests.builders import device
from tests.fleet.site import ADMIN
from tests.integration.stage import stage
from tuner.cli.app import main

SMALL = ["fleet", "--agents", "24", "--busy", "4", "--orders", "3", "--seconds", "3"]


def run(arguments: list[str]) -> int:
    return main(arguments, root=commands, name="python -m tests.bench")


@pytest.mark.slow
def test_a_small_fleet_is_simulated_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JOULETUNE_TUNER", "JOULETUNE_DB"):
        monkeypatch.delenv(name, raising=False)
    url = f"sqlite:///{tmp_path / 'fleet.sqlite'}"
    assert run([*SMALL, "--window", "0.5", "--db", url, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["agents"] == 24 and written["orders"] == 3 and written["orders_lost"] == 0
    assert written["trials_per_s"] > 0.0 and written["requests_per_s"] > 0.0
    assert written["failed_per_s"] == 0.0
    assert written["tuner_bytes"] >= written["tuner_bytes_before"] > 0
    store = open_store(url, create=False)
    assert not [s for s in store.studies.list() if s.active], "a study was left"
    assert all(t.state.final for s in store.studies.list() for t in store.trials.list(s.id))
    store.close()


def test_a_tuner_with_real_devices_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage(tmp_path) as played:
        played.token_file.touch(0o600)
        played.token_file.write_text(ADMIN)
        store = open_store(played.db)
        store.devices.put(device("gpu0@host1"))
        store.close()
        played.start_tuner()
        where = ["--tuner", f"http://127.0.0.1:{played.tuner_port}"]
        where += ["--token-file", str(played.token_file)]
        assert run([*SMALL, *where]) == 1
        assert "no simulation, gpu0@host1 among them" in capsys.readouterr().err


def test_more_busy_devices_than_agents_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "--agents", "5", "--busy", "6"]) == 2
    assert "more than 5 agents" in capsys.readouterr().err
