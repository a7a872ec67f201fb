"""Runs one fine-tuning job that can be paused, and that is never left paused.

`python -m agents.finetuning.supervisor WORD…` runs the command WORD… as one process group. A line
`pause` on standard input stops the group, a line `run` continues it. When standard input closes, the
group is continued and gets SIGTERM, and after `GRACE_S` SIGKILL. If this process itself is killed, the
kernel sends SIGTERM to the job. It also sends SIGHUP and SIGCONT to a paused group, because the group
is in this process's session and is then orphaned.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading

GRACE_S = 10.0
NOT_STARTED = 127
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def supervise(words: list[str]) -> int:
    """Run the job to its end; return its exit status."""
    try:
        job = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            preexec_fn=_tie,
        )
    except OSError as error:
        sys.stderr.write(f"cannot run {words[0]}: {error.strerror}\n")
        return NOT_STARTED
    threading.Thread(target=_obey, args=(job.pid,), daemon=True).start()
    status = job.wait()
    _send(job.pid, signal.SIGKILL)  # Its remaining children would be neither paced nor ended.
    return status


def _tie() -> None:
    """Give the job its own process group, and SIGTERM at the supervisor's death."""
    os.setpgrp()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _obey(group: int) -> None:
    """Pause and continue the job by the lines on standard input; at their end, end the job."""
    for line in sys.stdin:
        _send(group, signal.SIGSTOP if line.strip() == "pause" else signal.SIGCONT)
    _send(group, signal.SIGCONT)
    _send(group, signal.SIGTERM)
    killer = threading.Timer(GRACE_S, _send, (group, signal.SIGKILL))
    killer.daemon = True
    killer.start()


def _send(group: int, number: int) -> None:
    """Send a signal to a process group if it exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
