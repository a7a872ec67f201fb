"""A llama-server as a child process of the proxy."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from tuner.core import DeviceLost, InvalidInput

LOOPBACK = "127.0.0.1"
END_S = 10.0
LOG_LINES = 3
HELP_S = 30.0


class LlamaProcess:
    """The process; if `setpriv` is installed it ends with the proxy, even if that is killed."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
        self._process = process
        self.url = url
        self.log = log

    @classmethod
    async def start(cls, command: Sequence[str], options: Sequence[str], log: Path) -> LlamaProcess:
        """Start a command with options, on a free port of loopback. Raises InvalidInput."""
        port = free_port()
        own = ["--host", LOOPBACK, "--port", str(port), "--metrics", "--slots"]
        guard = shutil.which("setpriv")
        dying = [guard, "--pdeathsig", "KILL", "--"] if guard else []
        try:
            with log.open("ab") as out:
                process = await asyncio.create_subprocess_exec(
                    *dying,
                    *command,
                    *options,
                    *own,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )
        except OSError as error:
            raise InvalidInput(
                f"cannot start {command[0]}: {error.strerror}", hint="give the path of llama-server"
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
        return DeviceLost(f"llama-server {fault}{log_tail}", hint=f"see its log {self.log}")

    async def wait(self) -> int:
        """Wait for its end and return the exit status."""
        return await self._process.wait()

    async def end(self) -> None:
        """End it, by force if it takes too long."""
        if self.ended:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), END_S)
        except asyncio.TimeoutError:
            self._process.kill()
            await self._process.wait()


async def help_of(command: Sequence[str]) -> str:
    """Return a command's output with `--help`. Raises InvalidInput."""
    program = command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--help",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise InvalidInput(
            f"cannot start {program}: {error.strerror}", hint="give the path of llama-server"
        ) from None
    try:
        text, _ = await asyncio.wait_for(process.communicate(), HELP_S)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        raise InvalidInput(
            f"{program} --help did not end within {HELP_S:g} s",
            hint="give the path of llama-server",
        ) from None
    return text.decode(errors="replace")


def free_port() -> int:
    """Return a free port."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])
