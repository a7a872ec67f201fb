"""A board that a test has mounted, and its control interface."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx2
import pytest

HERE = Path(__file__).parents[2]
START_S, STOP_S = 60.0, 20.0
CACHED_S = 0.1
"""The time for which the mount may return a file's old content."""


@dataclass
class MountedBoard:
    """A mounted board: its files are under `root`, its control interface at `url`."""

    name: str
    root: Path
    url: str
    http: httpx2.Client

    def do(self, **what: object) -> None:
        """Do something behind the kernel's back: `faults`, `reset`, `manual`, `write`, `pass_s`, `cap`,
        `restart_counters`, `reload` of the clocks' driver, `resume`, `gpu_reset`, `gpu`: a card's state.
        """
        assert self.http.post(f"{self.url}/board", json=what).status_code == 200
        if what.get("reload"):
            # The kernel counts a timeout in ticks and rounds it up: twice the time is always past it.
            time.sleep(2 * CACHED_S)

    def reset(self) -> None:
        """Reset every file."""
        self.do(reset=True)

    def note(self, file: Path) -> None:
        """Write the board's state to a file, from any process."""
        with urlopen(f"{self.url}/board", json.dumps({"note": str(file)}).encode()):
            pass

    def put(self, file: Path) -> None:
        """Read the board's state from a file."""
        self.do(put=str(file))

    @property
    def told(self) -> Mapping[str, Any]:
        """The board's state: `energy_j`, `items`, `celsius`, and the `altered` files."""
        board: Mapping[str, Any] = self.http.get(f"{self.url}/board").json()
        return board

    @property
    def altered(self) -> Mapping[str, str]:
        """The files that differ from their original content."""
        altered: Mapping[str, str] = self.told["altered"]
        return altered

    def file(self, pattern: str) -> Path:
        """Return the first file of a pattern under the root."""
        return next(iter(sorted(self.root.glob(pattern))))


@contextmanager
def mounted(name: str, folder: Path) -> Iterator[MountedBoard]:
    """Mount a board in a separate process; skip the test if nothing can be mounted."""
    if not Path("/dev/fuse").exists() or shutil.which("fusermount3") is None:
        pytest.skip("boards are FUSE file systems: needs /dev/fuse, and apt install fuse3")
    # Without libfuse it raises OSError, which `importorskip` does not handle.
    pytest.importorskip("mfusepy", exc_type=(ImportError, OSError))  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.boards.serve", name, str(folder)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
        start_new_session=True,  # a test that reaps all our children does not wait for it
    ) as served:
        assert served.stdout is not None
        port = served.stdout.readline().strip()
        try:
            until = time.monotonic() + START_S
            while not (folder / "proc").is_dir():
                assert served.poll() is None and time.monotonic() < until, f"{name} is not mounted"
                time.sleep(0.02)
            with httpx2.Client(trust_env=False) as http:
                yield MountedBoard(name, folder, f"http://127.0.0.1:{port}", http)
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(folder)], check=False)
            served.terminate()
            served.wait(STOP_S)
