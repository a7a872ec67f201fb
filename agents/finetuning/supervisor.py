"""Runs one fine-tuning job that can be paused, and that is never left paused.

`python -m agents.finetuning.supervisor WORD…`: a line `pause` on standard input stops the job's whole
group, a line `run` continues it. When the other end of standard input closes, the job is continued,
asked to end, and killed after `GRACE_S`. Where this process itself is killed, the kernel continues the job.
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
            start_new_session=True,
            preexec_fn=_continue_if_orphaned,
        )
    except OSError as error:
        sys.stderr.write(f"cannot run {words[0]}: {error.strerror}\n")
        return NOT_STARTED
    threading.Thread(target=_obey, args=(job.pid,), daemon=True).start()
    return job.wait()


def _continue_if_orphaned() -> None:
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def _obey(group: int) -> None:
    for line in sys.stdin:
        _send(group, signal.SIGSTOP if line.strip() == "pause" else signal.SIGCONT)
    _send(group, signal.SIGCONT)
    _send(group, signal.SIGTERM)
    killer = threading.Timer(GRACE_S, _send, (group, signal.SIGKILL))
    killer.daemon = True
    killer.start()


def _send(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
