"""The place that a noun command asks: a tuner or a database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

import pytest

from tests.builders import START
from tests.errors import raised
from tuner.cli import asking
from tuner.cli.asking import ApiAddress, looks, open_api, place
from tuner.cli.options import STATE_DIR
from tuner.cli.runfile import RunJob, RunRecord, write_run
from tuner.core import ConfigError, Event, LinkError, StoreError
from tuner.verbs.table import Verbs
from tuner.wire import StudyView

NOBODY: dict[str, str] = {}
TUNER = {"JOULETUNE_TUNER": "http://t", "JOULETUNE_TOKEN_FILE": "/token"}


def test_options_win_over_the_environment(tmp_path: Path) -> None:
    assert place("http://h:1/", None, "", TUNER, tmp_path) == ApiAddress(
        "http://h:1", Path("/token")
    )
    assert place("", None, "sqlite:///x", TUNER, tmp_path) == ApiAddress(db="sqlite:///x")
    assert place("", Path("mine"), "", TUNER, tmp_path) == ApiAddress("http://t", Path("mine"))
    assert place("", None, "", {"JOULETUNE_DB": "sqlite:///y"}, tmp_path).db == "sqlite:///y"


def test_two_places_at_once_are_refused(tmp_path: Path) -> None:
    with raised(ConfigError, "--tuner", "--db"):
        place("http://h", None, "sqlite:///x", NOBODY, tmp_path)
    with raised(ConfigError, "JOULETUNE_TUNER", "JOULETUNE_DB"):
        place("", None, "", {**TUNER, "JOULETUNE_DB": "sqlite:///y"}, tmp_path)


def test_without_options_the_last_run_in_the_folder_is_used(tmp_path: Path) -> None:
    with raised(ConfigError, "--tuner", "URL", "--db"):
        place("", None, "", NOBODY, tmp_path)
    (tmp_path / STATE_DIR).mkdir()
    write_run(tmp_path / STATE_DIR, RunRecord(db="sqlite:///z", jobs=[RunJob(device="cpu")]))
    assert place("", None, "", NOBODY, tmp_path) == ApiAddress(db="sqlite:///z")


def test_asking_does_not_make_a_database(tmp_path: Path) -> None:
    file = tmp_path / "none.sqlite"
    with raised(StoreError, "database"), open_api("", None, f"sqlite:///{file}"):
        pass
    assert not file.exists()


class Following:
    """An operator's API that reports this many changes and then fails."""

    def __init__(self, changes: int) -> None:
        self._changes = changes

    def follow(self) -> Iterator[Event]:
        for _ in range(self._changes):
            yield Event(at=START, kind="changed", text="", study="s1")
        raise LinkError("the tuner is gone")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PACE_S", 0.0)


def test_without_watching_the_state_is_shown_once() -> None:
    assert len(list(looks(cast("Verbs[StudyView]", Following(5)), False))) == 1


def test_a_lost_tuner_ends_it_with_the_reason() -> None:
    seen = looks(cast("Verbs[StudyView]", Following(2)), True)
    with pytest.raises(LinkError, match="is gone"):
        for _ in islice(seen, 10):
            pass


def test_without_a_change_it_is_shown_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LOOK_S", 0.01)

    class Silent(Following):
        def follow(self) -> Iterator[Event]:
            import threading

            threading.Event().wait(0.5)
            yield from super().follow()

    assert len(list(islice(looks(cast("Verbs[StudyView]", Silent(0)), True), 3))) == 3
