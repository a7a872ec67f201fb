"""Backups of a working tuner are restored into one that continues, on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from db import Store, open_store
from db.upkeep.backup import backup, restore
from db.upkeep.check import check
from db.upkeep.prune import Pruning
from tests import postgres
from tests.builders import START, completed, setting, study
from tests.frozen.content import fill
from tests.frozen.make import postgres_server
from tests.integration.stage import Stage, stage
from tests.processes import until
from tuner.cli.app import main
from tuner.core import Conflict, InvalidInput, Phase
from tuner.main import utc_now


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, "lease_s = 3.0\nabandon_s = 10.0\n") as made:
        yield made


def ended(site: Stage, study: str) -> int:
    return sum(trial["state"] == "completed" for trial in site.trials(study))


@pytest.mark.promise("a tool is killed while it restores or prunes the database")
@pytest.mark.slow
def test_the_backup_of_a_running_study_continues_where_it_was_made(
    found: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    found.start_tuner()
    found.start_agent("simulated:orin")
    study = found.create(terms={"trials": 8, "window_s": 0.5})
    until(lambda: ended(found, study) >= 4, "no trials are made")
    file = found.folder / "backup"
    assert main(["db", "backup", str(file), "--db", found.db]) == 0
    assert f"{file}: " in capsys.readouterr().out
    until(lambda: ended(found, study) >= 6, "the tuner does not go on during a backup")
    assert main(["db", "restore", str(file), "--db", found.db, "--yes"]) == 1
    assert "a tuner is using" in capsys.readouterr().err
    found.kill("tuner")
    assert main(["db", "restore", str(file), "--db", found.db, "--yes"]) == 0
    assert "the former database is" in capsys.readouterr().out
    found.start_tuner()
    found.await_phase(study, "holding")
    numbers = [trial["number"] for trial in found.trials(study)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert not [t for t in found.trials(study) if t["state"] == "running"]
    assert main(["db", "check", "--db", found.db]) == 0
    assert main(["doctor", "--db", found.db]) == 0
    out = capsys.readouterr().out
    assert "database: last backup" in out and "none yet" in out, (
        "the restored one has no later event"
    )


def test_pruning_beside_a_tuner_lists_the_deletions_and_keeps_an_active_study(
    found: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    found.start_tuner()
    found.start_agent("simulated:orin")
    first = found.create(terms={"trials": 2, "window_s": 0.5})
    until(lambda: ended(found, first) >= 2, "no trials are made")
    found.call("POST", f"/studies/{first}/stop", {})
    second = found.create(terms={"trials": 3, "window_s": 0.5})
    command = ["db", "prune", "--db", found.db, "--keep-stopped", "0"]
    assert main([*command, "--dry-run"]) == 0
    assert "1 stopped studies with" in capsys.readouterr().out
    assert len(found.call("GET", "/studies")) == 2
    assert main([*command, "--yes", "--vacuum"]) == 0
    assert [s["id"] for s in found.call("GET", "/studies")] == [second]
    found.await_phase(second, "holding")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if shutil.which("pg_dump") is None:
        pytest.skip("no pg_dump here: apt install postgresql-client")
    with postgres_server() as url:
        yield url


def trials(store: Store) -> list[int]:
    return [trial.number for trial in store.trials.list("extra")]


@pytest.mark.postgres
def test_a_postgresql_database_comes_back_whole_or_not_at_all(server: str, tmp_path: Path) -> None:
    url, file = postgres.new_database(server, "kept"), tmp_path / "backup"
    store = open_store(url)
    fill(store)
    store.studies.add(study(id="extra", devices=("extra",)), "ann", "")
    trial = store.trials.begin("extra", setting(), Phase.TUNING, "", START)
    store.trials.end("extra", trial.number, completed(1), START)
    backup(url, file)
    store.trials.begin("extra", setting(), Phase.TUNING, "", START)
    store.bus.listen()
    with pytest.raises(Conflict, match="a tuner is using"):
        _until_refused(url, file)
    store.close()
    assert restore(url, file) is None
    store = open_store(url)
    assert trials(store) == [1]
    before = [event.id for event in store.events.list()]
    store.close()
    assert all(c.well for c in check(url, utc_now) if c.about != "last backup")
    other = postgres.new_database(server, "empty")
    restore(other, file)
    opened = open_store(other)
    assert trials(opened) == [1] and [event.id for event in opened.events.list()] == before
    opened.close()
    broken = tmp_path / "broken"
    broken.write_bytes(file.read_bytes()[: len(file.read_bytes()) // 2])
    with pytest.raises(Exception, match=r"pg_restore|no schema"):
        restore(other, broken)
    with pytest.raises(InvalidInput):
        restore(f"sqlite:///{tmp_path / 'x.sqlite'}", file)
    again = open_store(other)
    assert trials(again) == [1]
    again.close()
    pruning = Pruning(url)
    pruning.carry_out(pruning.plan(utc_now(), keep_stopped=0))
    pruning.vacuum()
    pruning.close()
    assert all(c.well for c in check(url, utc_now) if c.about != "last backup")


def _until_refused(url: str, file: Path) -> None:
    """Restore repeatedly until the listening tuner has its lock, which it takes in a separate thread."""
    for _ in range(50):
        restore(url, file)
