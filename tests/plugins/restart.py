"""Ends the process of a pid file and starts a daemon anew: `python -m tests.plugins.restart FILE WORD…`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

DEADLINE_S = 60.0


def main(pid_file: Path, words: list[str]) -> None:
    os.kill(int(pid_file.read_text()), signal.SIGTERM)
    end = time.monotonic() + DEADLINE_S
    while pid_file.exists():
        assert time.monotonic() < end, f"{pid_file} is still there"
        time.sleep(0.02)
    subprocess.run(words, check=True)
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert time.monotonic() < end, f"there is no {pid_file}"
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
