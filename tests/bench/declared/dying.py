"""`python -m tests.bench.declared.dying URL FILE N`: apply a fleet file, and be killed at the Nth commit.

With an odd N before the commit, else after it. Exits with 0 where everything was applied by then.
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
    """Apply the file, and die on the way."""
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
