"""`python -m tests.bench.declared.dying URL FILE N`: apply a fleet file, and be killed at the Nth commit.

The kill is before the commit for an odd N, else after it. The exit status is 0 if everything was
applied before.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from db import open_store
from tests.bench.declared.fleet import draft, operations_on


def main(url: str, file: Path, number: int) -> None:
    """Apply the file, and die at the given commit."""
    operations, commits = operations_on(open_store(url)), [0]

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(_: object) -> None:
        commits[0] += 1
        if commits[0] == -(-number // 2):
            if number % 2:
                die()
            event.listen(Engine, "checkin", die)

    event.listen(Engine, "commit", counted)
    operations.apply_fleet(draft(file.read_text()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
