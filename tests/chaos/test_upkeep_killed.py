"""kill -9 at every line of a restore and a prune: the database is intact, and a repetition completes it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from db import open_store
from db.upkeep import prune
from db.upkeep.backup import backup, restore
from db.upkeep.check import check
from db.upkeep.prune import Pruning
from tests.builders import START, completed, setting, study
from tests.contracts.log import event, observation
from tests.unit.db.upkeep.test_prune import BEFORE
from tuner.core import Phase

WATCHED = f"{os.sep}db{os.sep}upkeep{os.sep}"


def killed_at(line: int, work: Callable[[], object]) -> bool:
    """Run a function in a process that is killed at its n-th line; return False if it ended before."""
    child = os.fork()
    if child == 0:
        seen = 0

        def trace(frame: FrameType, kind: str, _: Any) -> Any:  # noqa: ANN401  sys.settrace's own
            nonlocal seen
            if WATCHED not in frame.f_code.co_filename:
                return None
            seen += kind == "line"
            if seen >= line:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(None)
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def content(path: Path) -> list[str]:
    """Return a database's content, without its write-ahead log."""
    open_store(f"sqlite:///{path}", create=False).close()
    with closing(sqlite3.connect(path)) as file:
        return list(file.iterdump())


def whole(path: Path) -> bool:
    checks = check(f"sqlite:///{path}", lambda: START)
    return all(c.well for c in checks if c.about not in ("last backup", "room"))


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A database with stopped studies, trials, windows and events."""
    path = tmp_path / "made.sqlite"
    store = open_store(f"sqlite:///{path}")
    for n in range(3):
        store.studies.add(study(id=f"s{n}", devices=(f"d{n}",)), "ann", "")
        trial = store.trials.begin(f"s{n}", setting(), Phase.TUNING, "", START)
        store.trials.end(f"s{n}", trial.number, completed(n), START)
        stopped = store.studies.get(f"s{n}").moved(Phase.STOPPED)
        store.studies.revise(stopped, "ann", "", START)
    for minute in range(8):
        store.observations.add_all([observation(minute, study="s2", device="d2")])
        store.events.add(event(minute))
    store.close()
    return path


@pytest.mark.promise(
    "a tool is killed while it restores or prunes the database",
    "the database is complete: the one before or the one after",
)
def test_a_restore_killed_anywhere_leaves_one_of_both_whole(
    made: Path, tmp_path: Path, count: Callable[[str, int, int], None]
) -> None:
    file, target = tmp_path / "backup", tmp_path / "tuner.sqlite"
    url = f"sqlite:///{target}"
    store = open_store(f"sqlite:///{tmp_path / 'empty.sqlite'}")
    store.close()
    backup(f"sqlite:///{made}", file)
    old, new, line = content(tmp_path / "empty.sqlite"), content(made), 0
    assert old != new
    while True:
        line += 1
        for left in tmp_path.glob("tuner.sqlite*"):
            left.unlink()
        shutil.copy(tmp_path / "empty.sqlite", target)
        killed = killed_at(line, lambda: restore(url, file))
        assert content(target) in (old, new), f"line {line}"
        assert whole(target), f"line {line}"
        restore(url, file)
        assert content(target) == new, f"line {line}"
        if not killed:
            break
    assert line > 30
    count("upkeep: restore", line - 1, 0)


@pytest.mark.promise("a tool is killed while it restores or prunes the database")
def test_a_prune_killed_anywhere_deletes_nothing_else_and_goes_on(
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: Callable[[str, int, int], None],
) -> None:
    monkeypatch.setattr(prune, "AT_ONCE", 2)
    target = tmp_path / "tuner.sqlite"
    url = f"sqlite:///{target}"

    def pruned() -> None:
        pruning = Pruning(url)
        pruning.carry_out(pruning.plan(BEFORE, keep_stopped=1))
        pruning.close()

    def fresh() -> None:
        for left in tmp_path.glob("tuner.sqlite*"):
            left.unlink()
        shutil.copy(made, target)

    fresh()
    pruned()
    wanted, line = content(target), 0
    while True:
        line += 1
        fresh()
        killed = killed_at(line, pruned)
        left = content(target)
        assert set(wanted) <= set(left), f"line {line}: what was to stay is gone"
        assert whole(target), f"line {line}"
        pruned()
        assert content(target) == wanted, f"line {line}"
        if not killed:
            break
    assert line > 20
    count("upkeep: prune", line - 1, 0)
