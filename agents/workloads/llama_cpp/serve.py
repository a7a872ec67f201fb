"""Runs the proxy until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from agents.workloads.llama_cpp.child import LOOPBACK
from agents.workloads.llama_cpp.control import LengthControl, attached_control, launched
from agents.workloads.llama_cpp.decoding import DecodingLoad
from agents.workloads.llama_cpp.launch import Launcher
from agents.workloads.llama_cpp.proxy import application
from tuner.core import Clock, InvalidInput

ENDING = (signal.SIGTERM, signal.SIGINT)
END_S = 600
"""How long streams may go on after a signal to end; a second signal ends at once."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What the proxy is in front of: a command of ours, or a running server's `url`.

    `length` is the first one in force. Port 0 is any free one.
    """

    port: int
    longest: int
    length: int = 0
    command: Sequence[str] = ()
    drafts: Mapping[str, Path] | None = None
    url: str = ""
    state_dir: Path = Path()


def run_proxy(
    options: ProxyOptions, clock: Clock, ready: Callable[[str, LengthControl], None]
) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called with the URL once requests are answered.

    Raises:
        InvalidInput: the command, a draft or the address cannot be used, or a running server ignores
            the length of a request.
        ActuationError, DeviceLost: no llama-server gets ready.
    """
    asyncio.run(_run(options, clock, ready))


async def _run(
    options: ProxyOptions, clock: Clock, ready: Callable[[str, LengthControl], None]
) -> None:
    # Named TCP, or asyncio does not see that it is and leaves Nagle's 40 ms in the latencies.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listener:
        try:
            listener.bind((LOOPBACK, options.port))
            listener.listen()
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"cannot listen on {LOOPBACK}:{options.port}: {error}", hint="choose another --port"
            ) from None
        opening = asyncio.ensure_future(_open(options, DecodingLoad(clock)))
        with _cancelled_by_signal(opening):
            try:
                control = await opening
            except asyncio.CancelledError:
                return
        for number in ENDING:
            signal.signal(number, _noted)
        try:
            server = uvicorn.Server(_config(control))
            url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
            ready(url, control)
            await server.serve(sockets=[listener])
        finally:
            await control.servers.close()


async def _open(options: ProxyOptions, load: DecodingLoad) -> LengthControl:
    if options.url:
        return await attached_control(options.url, load, options.longest, options.length)
    launcher = await Launcher.of(options.command, options.drafts or {}, options.state_dir)
    return await launched(launcher, load, options.longest, options.length)


def _config(control: LengthControl) -> uvicorn.Config:
    return uvicorn.Config(
        application(control),
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        # Answers pass through as they are, without a header of ours.
        server_header=False,
        date_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=END_S,
    )


@contextmanager
def _cancelled_by_signal(task: asyncio.Future[LengthControl]) -> Iterator[None]:
    """Cancel a task at a signal to end, within the block."""
    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: uvicorn ends gracefully at a signal, and then raises it again."""
