"""Run `jouletune …` as a child that never outlives the process that started it.

The parent holds the other end of this process's stdin and never writes to it, so the read ends when the
parent exits or is killed. Then this process receives SIGTERM, and after `GRACE_S` its descendants and its
process group are killed: an engine has a session of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress

import psutil

from tuner.cli.app import main

GRACE_S = 15.0


def end_with_parent(stdin: int = 0) -> None:
    """Wait until the parent is gone, then end this process and its group."""
    while os.read(stdin, 1024):
        pass
    own = os.getpid()
    os.kill(own, signal.SIGTERM)
    time.sleep(GRACE_S)
    for descendant in psutil.Process(own).children(recursive=True):
        with suppress(psutil.Error):
            descendant.kill()
    if os.getpgrp() == own:
        os.killpg(own, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, name="end-with-parent", daemon=True).start()
    sys.exit(main())
