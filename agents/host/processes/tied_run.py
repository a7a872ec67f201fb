"""Runs one program that never outlives the process that asked for it, and reports what it took.

`python -m agents.host.processes.tied_run FD WORD…`: the program's words come after the number of the pipe
that one line of JSON is written to when it has ended: `status` (negative: the signal that ended it),
`seconds`, and `cpu_s` of it and of all that it waited for. When the other end of standard input is closed,
or at SIGTERM, the program and its whole group get SIGTERM, and are killed after `GRACE_S`.
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
    """Run the program and report; return the exit status of this one."""
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
    _kill(program.pid)  # what it left running would be measured with the next one
    _report(report, program.returncode, seconds, used.ru_utime + used.ru_stime)
    return 0


def _report(report: int, status: int, seconds: float, cpu_s: float) -> None:
    ending = {"status": status, "seconds": seconds, "cpu_s": cpu_s}
    os.write(report, json.dumps(ending).encode() + b"\n")


def _end_at_eof(group: int) -> None:
    while os.read(0, 4096):
        pass
    _ask_to_end(group)


def _ask_to_end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGTERM)
    except ProcessLookupError:
        return
    killer = threading.Timer(GRACE_S, _kill, args=(group,))
    killer.daemon = True
    killer.start()


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
