"""The place that a noun command asks: a tuner or a database."""

from __future__ import annotations

from pathlib import Path

from tests.errors import raised
from tuner.cli.options import STATE_DIR
from tuner.cli.place import ApiAddress, open_api, place
from tuner.cli.runfile import RunJob, RunRecord, write_run
from tuner.core import ConfigError, StoreError

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
