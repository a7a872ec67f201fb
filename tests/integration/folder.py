"""A folder in which `jouletune` runs as an operator types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from db import open_store
from tests.processes import gone, link, processes
from tuner.cli.runfile import read_run

PROGRAM = [sys.executable, "-c", "import sys; from tuner.cli.app import main; sys.exit(main())"]
REPOSITORY = Path(__file__).parents[2]


class Folder:
    """A folder to run in, and the processes started there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / ".jouletune"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in the folder."""
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def ask(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=100)
        return process.returncode, out, err

    def run(self, *arguments: str) -> Any:  # noqa: ANN401
        """Run a successful study, and return its JSON output."""
        code, out, err = self.ask("run", *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    def trials(self) -> int:
        """Return the number of begun trials of the present study."""
        record = read_run(self.state)
        if record is None or not record.jobs[0].study:
            return 0
        store = open_store(f"sqlite:///{self.state / 'jouletune.sqlite'}", create=False)
        try:
            return len(store.trials.list(record.jobs[0].study))
        finally:
            store.close()

    def processes(self) -> list[int]:
        """Return the processes that work in this folder."""
        here = str(self.path)
        return [pid for pid in processes() if link(pid, "cwd") == here and not gone(pid)]

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
