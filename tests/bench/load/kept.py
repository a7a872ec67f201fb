"""Stores the rivals' runs, which do not depend on the product and take most of a cell's time."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import jouletune_bench.llm as simulator
from tests.bench.load import governors, oracles, play, servers
from tests.bench.load.play import Played


def code_key() -> str:
    """Return a digest of the code that a rival's run depends on: the servers', and the rivals'."""
    files = sorted(Path(str(simulator.__file__)).parent.glob("*.py"))
    files += [Path(str(module.__file__)) for module in (governors, oracles, play, servers)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


class KeptRuns:
    """Runs by their key, in a file; several processes may use it at once."""

    def __init__(self, file: Path | None) -> None:
        """Store runs in a file; without a file, store none."""
        self._file, self._code = file, code_key() if file is not None else ""

    def run(self, key: str, make: Callable[[], Played]) -> Played:
        """Return the run of a key, playing it if it is not stored."""
        if self._file is None:
            return make()
        key = hashlib.sha256(f"{self._code}/{key}".encode()).hexdigest()
        with closing(sqlite3.connect(self._file, timeout=60.0)) as kept:
            kept.execute("create table if not exists runs (key text primary key, run text)")
            row = kept.execute("select run from runs where key = ?", (key,)).fetchone()
            if row is not None:
                known = json.loads(row[0])
                return Played(**{**known, "windows": tuple(map(tuple, known["windows"]))})
            played = make()
            kept.execute(
                "insert or replace into runs values (?, ?)", (key, json.dumps(asdict(played)))
            )
            kept.commit()
        return played
