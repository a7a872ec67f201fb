"""Race-free queries of processes and ports: a process may end between two reads.

Every test uses these instead of reading /proc itself; tests/test_processes.py checks that.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


def run_to_end(
    command: Sequence[str | Path],
    *,
    check: bool = False,
    **options: Any,  # noqa: ANN401
) -> subprocess.CompletedProcess[str]:
    """Run a command, and return it with its output as text; the options are those of `subprocess.run`."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)


def until(
    done: Callable[[], object], why: str | Callable[[], str] = "", within_s: float = 60.0
) -> None:
    """Wait until a condition holds; otherwise fail with `why`, a text or a function called at the end."""
    end = time.monotonic() + within_s
    while not done():
        late = f"{why if isinstance(why, str) else why()}: not within {within_s:g} s"
        assert time.monotonic() < end, late
        time.sleep(0.01)


def proc(pid: int, file: str) -> str:
    """Return a file of /proc/PID (proc(5)); empty once the process is reaped."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def listed(pid: int, folder: str) -> list[str]:
    """Return the names in a folder of /proc/PID; empty once the process is reaped."""
    try:
        return [path.name for path in Path(f"/proc/{pid}/{folder}").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def link(pid: int, name: str) -> str:
    """Return the target of a link in /proc/PID; empty for an ended process, or another user's."""
    try:
        return str(Path(f"/proc/{pid}/{name}").readlink())
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the name: state, parent, group, session."""
    return proc(pid, "stat").rpartition(") ")[2].split() or ["Z", "0", "0", "0"]


def state(pid: int) -> str:
    """Return the letter of a process's state; Z, a zombie's, also once it is reaped."""
    return _stat(pid)[0]


def gone(*pids: int) -> bool:
    """Return whether all these processes have ended, reaped or not."""
    return all(state(pid) in "ZX" for pid in pids)


def stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal."""
    return state(pid) == "T"


def parent(pid: int) -> int:
    """Return a process's parent; 0 once the process is reaped."""
    return int(_stat(pid)[1])


def session(pid: int) -> int:
    """Return the session of a process; 0 once the process is reaped."""
    return int(_stat(pid)[3])


def cpu_s(pid: int) -> float:
    """Return a process's CPU time in seconds; nan once the process is reaped."""
    ticks = _stat(pid)[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") if ticks else math.nan


def command_line(pid: int) -> list[str]:
    """Return a process's command line as words; empty once it has ended."""
    return proc(pid, "cmdline").split("\0")[:-1]


def processes() -> Iterator[int]:
    """Yield the running processes of this machine."""
    yield from (int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit())


def children(pid: int) -> list[int]:
    """Return the running children of a process."""
    return [child for child in processes() if parent(child) == pid and not gone(child)]


def kill(*pids: int) -> None:
    """Kill processes, and return once all of them have ended."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until(lambda: gone(*pids), f"{pids} do not end")


def reserved_port() -> int:
    """Return a port of loopback that stays reserved; a server with SO_REUSEADDR can bind it at any time.

    A port that was only looked up may be given to another process before its user binds it. The
    socket here is bound and never listens: connections are refused until the server listens, and Linux
    neither picks the port for others nor refuses it to a socket with SO_REUSEADDR (socket(7)).
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    atexit.register(held.close)
    return int(held.getsockname()[1])
