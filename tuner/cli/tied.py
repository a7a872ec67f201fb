"""Run `jouletune …` as a child that never outlives the process that started it.

The parent holds the other end of this process's stdin and never writes to it: when the parent is
gone, by whatever death, the read ends. Then the command is requested to end, and after a grace its whole
process group is killed, so that nothing it started stays either.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from tuner.cli.app import main

GRACE_S = 15.0


def end_with_parent(stdin: int = 0) -> None:
    """Wait for the parent's end, then end this process and its group."""
    while os.read(stdin, 1024):
        pass
    own = os.getpid()
    os.kill(own, signal.SIGTERM)
    time.sleep(GRACE_S)
    if os.getpgrp() == own:
        os.killpg(own, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, name="end-with-parent", daemon=True).start()
    sys.exit(main())
