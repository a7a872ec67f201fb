"""`jouletune events` and `jouletune audit` on a database without a tuner."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import typer

from db import Store, open_store
from tests.builders import START
from tests.contracts.log import entry
from tuner.cli.app import main
from tuner.core import Event


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    url = f"sqlite:///{tmp_path / 'made.sqlite'}"
    monkeypatch.setenv("JOULETUNE_DB", url)
    monkeypatch.setenv("COLUMNS", "200")
    return open_store(url)


def note(store: Store, text: str, study: str = "s1", device: str = "") -> None:
    at = START + timedelta(minutes=store.events.newest())
    store.events.add(Event(at=at, kind="drift", text=text, study=study, device=device))


def test_the_latest_are_shown_by_study_and_device(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["events"]) == 0
    assert "no events yet" in capsys.readouterr().out
    for text, study, device in (("x", "s1", ""), ("y", "s2", "gpu"), ("z", "", "gpu")):
        note(store, text, study, device)
    assert main(["events", "--limit", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("drift [s2 gpu]: y") and second.endswith("drift [gpu]: z")
    assert main(["events", "--study", "s1", "--json"]) == 0
    assert [e["text"] for e in json.loads(capsys.readouterr().out)] == ["x"]


def test_a_follower_continues_with_new_events(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note(store, "before")
    enough = threading.Event()

    def add() -> None:
        for n in range(2_000):
            if enough.wait(0.05):
                return
            note(store, f"new {n}")

    class Enough(Exception):
        pass

    printed, echo = [], typer.echo

    def count(line: str) -> None:
        printed.append(json.loads(line)["text"])
        echo(line)
        if len(printed) == 4:
            enough.set()
            raise Enough

    monkeypatch.setattr(typer, "echo", count)
    adding = threading.Thread(target=add)
    adding.start()
    began = time.monotonic()
    with pytest.raises(Enough):
        main(["events", "--follow", "--json"])
    adding.join()
    assert printed[0] == "before"
    numbers = [int(text.removeprefix("new ")) for text in printed[1:]]
    assert numbers == list(range(numbers[0], numbers[0] + 3)), "none is left out"
    assert time.monotonic() - began < 60.0


def test_the_audit_log_has_authors_and_changes(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit"]) == 0
    assert "no changes" in capsys.readouterr().out
    store.audit.add(entry(0, "ann"))
    store.audit.add(entry(1, "bob"))
    assert main(["audit", "--who", "ann"]) == 0
    out = capsys.readouterr().out
    assert "POST /v1/stop" in out and "10.0.0.7" in out and "bob" not in out
    assert main(["audit", "--json"]) == 0
    assert [e["who"] for e in json.loads(capsys.readouterr().out)] == ["ann", "bob"]
