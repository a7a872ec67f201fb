"""An engine as a child process of the proxy."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tuner.core import DeviceLost, InvalidInput

LOOPBACK = "127.0.0.1"
END_S, LOOK_S = 10.0, 0.05
LOG_LINES = 3
HELP_S = 120.0
"""Time in s for `--help`: vLLM loads torch for it."""
LOG = "engine.log"
GIVE_PATH = "give the path of the engine's program"


class EngineProcess:
    """The process; if `setpriv` is installed it ends with the proxy, even if that is killed."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
        self._process = process
        self.url = url
        self.log = log

    @classmethod
    async def start(
        cls, command: Sequence[str], options: Sequence[str], log: Path
    ) -> EngineProcess:
        """Start a command with options, on a free port of loopback. Raises InvalidInput."""
        port = free_port()
        guard = shutil.which("setpriv")
        dying = [guard, "--pdeathsig", "KILL", "--"] if guard else []
        try:
            with log.open("ab") as out:
                process = await asyncio.create_subprocess_exec(
                    *dying,
                    *command,
                    *options,
                    *("--host", LOOPBACK, "--port", str(port)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        except OSError as error:
            raise InvalidInput(
                f"cannot start {command[0]}: {error.strerror}", hint=GIVE_PATH
            ) from None
        return cls(process, f"http://{LOOPBACK}:{port}", log)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.returncode is not None

    def lost(self, fault: str) -> DeviceLost:
        """Return the error for a fault of the process, with the end of its log."""
        lines = self.log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
        log_tail = (
            "; end of its log: " + " | ".join(line.strip() for line in lines) if lines else ""
        )
        return DeviceLost(f"the engine {fault}{log_tail}", hint=f"see its log {self.log}")

    async def wait(self) -> int:
        """Wait for its end and return the exit status."""
        return await self._process.wait()

    async def end(self) -> None:
        """End it, by force if it takes too long, with the processes that it leaves."""
        if not self.ended:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), END_S)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()


def end_leftovers(folder: Path) -> None:
    """Kill every process of this user whose output goes to the log of a proxy with this folder.

    Returns once they have ended. vLLM's workers outlive its first process if that is killed, and they hide
    their environment.
    """
    log, until_s = str(folder.resolve() / LOG), time.monotonic() + END_S
    while (left := list(writers(log))) and time.monotonic() < until_s:
        for number in left:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        time.sleep(LOOK_S)


def writers(log: str) -> Iterator[int]:
    """Yield the processes whose output goes to a file."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if log in {str((process / "fd" / number).readlink()) for number in "12"}:
                yield int(process.name)


async def help_of(command: Sequence[str], word: str = "--help") -> str:
    """Return a command's output with `--help`. Raises InvalidInput."""
    program = command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            word,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise InvalidInput(f"cannot start {program}: {error.strerror}", hint=GIVE_PATH) from None
    try:
        text, _ = await asyncio.wait_for(process.communicate(), HELP_S)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        raise InvalidInput(
            f"{program} {word} did not end within {HELP_S:g} s",
            hint="start it by hand once; the machine may be too busy",
        ) from None
    shown = text.decode(errors="replace")
    if process.returncode and "--" not in shown:  # some builds end with a status after their help
        last = (shown.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise InvalidInput(f"{program} {word} fails: {last.strip()}", hint="start it by hand once")
    return shown


def free_port() -> int:
    """Return a free port."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])
