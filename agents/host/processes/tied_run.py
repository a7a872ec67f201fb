"""Run one program that never outlives its caller, and report its duration and CPU time.

Usage: `python -m agents.host.processes.tied_run FD WORD…`. FD is the number of a pipe; the words are the
program and its arguments. When the program has ended, one line of JSON is written to the pipe: `status`
(negative: the signal that ended the program), `seconds`, and `cpu_s` of the program and of all children
for which it waited. When the other end of standard input is closed, or on SIGTERM, the program's process
group gets SIGTERM and is killed `GRACE_S` seconds later.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 5.0
NOT_STARTED = 127


def run(report: int, words: list[str]) -> int:
    """Run the program and write the report; return the exit status of this process."""
    os.set_inheritable(report, False)
    began = time.perf_counter()
    try:
        program = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        sys.stdout.write(f"cannot run {words[0]}: {error.strerror}\n")
        sys.stdout.flush()
        _report(report, NOT_STARTED, 0.0, 0.0)
        return 0
    threading.Thread(target=_end_at_eof, args=(program.pid,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: _ask_to_end(program.pid))
    _, status, used = os.wait4(program.pid, 0)
    seconds = time.perf_counter() - began
    program.returncode = os.waitstatus_to_exitcode(status)
    _kill(program.pid)  # processes left running would be measured with the next run
    _report(report, program.returncode, seconds, used.ru_utime + used.ru_stime)
    return 0


def _report(report: int, status: int, seconds: float, cpu_s: float) -> None:
    """Write the report as one line of JSON to the pipe."""
    ending = {"status": status, "seconds": seconds, "cpu_s": cpu_s}
    os.write(report, json.dumps(ending).encode() + b"\n")


def _end_at_eof(group: int) -> None:
    """End the process group when the other end of standard input is closed."""
    while os.read(0, 4096):
        pass
    _ask_to_end(group)


def _ask_to_end(group: int) -> None:
    """Send SIGTERM to the process group, and SIGKILL after `GRACE_S` seconds."""
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        return
    killer = threading.Timer(GRACE_S, _kill, args=(group,))
    killer.daemon = True
    killer.start()


def _kill(group: int) -> None:
    """Send SIGKILL to the process group, if it still exists."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
