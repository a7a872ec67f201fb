"""Runs the proxy until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from agents.host.http.serving import listening, quiet_server, url_of
from agents.workloads.engine.child import end_leftovers
from agents.workloads.engine.control import EngineControl, launched
from agents.workloads.engine.decoding import DecodingLoad
from agents.workloads.engine.forward import Forwarder
from agents.workloads.engine.launch import Launcher, ServerFlag
from agents.workloads.engine.llama import Draft
from agents.workloads.engine.proxy import application
from tuner.core import Clock

ENDING = (signal.SIGTERM, signal.SIGINT)
END_S = 600
"""Time in s for streams to finish after a signal to end; a second signal ends them immediately."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The proxy's options, among them the `command` that it starts.

    `length` is the initial draft length. Port 0 is any free port.
    """

    port: int
    longest: int = 8
    length: int = 0
    command: Sequence[str] = ()
    drafts: Mapping[str, Draft] | None = None
    state_dir: Path = Path()
    flags: Sequence[ServerFlag] = ()


def run_proxy(
    options: ProxyOptions, clock: Clock, ready: Callable[[str, EngineControl], None]
) -> str:
    """Serve until SIGTERM or SIGINT, and return the numbers of requests and restarts as text.

    `ready` is called with the URL once requests are answered.

    Raises:
        InvalidInput: the command, a flag or a draft cannot be used.
        ActuationError, DeviceLost: no server becomes ready.
    """
    return asyncio.run(_run(options, clock, ready))


async def _run(
    options: ProxyOptions, clock: Clock, ready: Callable[[str, EngineControl], None]
) -> str:
    """Open the server, then serve; end quietly if a signal comes first."""
    with listening(options.port) as listener:
        folder = options.state_dir / f"engine-{listener.getsockname()[1]}"
        end_leftovers(folder)  # those of an earlier proxy at this port, which is ours now
        opening = asyncio.ensure_future(_open(options, folder, DecodingLoad(clock)))
        with _cancelled_by_signal(opening):
            try:
                control = await opening
            except asyncio.CancelledError:
                return "it was ended before it served"
        for number in ENDING:
            signal.signal(number, _noted)
        try:
            forwarder = Forwarder(control)
            server = quiet_server(application(control, forwarder), END_S)
            ready(url_of(listener), control)
            await server.serve(sockets=[listener])
            servers = control.servers
            return (
                f"{control.load.arrived} requests, {forwarder.lost} lost, {servers.switches} changes, "
                f"{servers.restarts} restarts after a failure"
            )
        finally:
            await control.servers.close()


async def _open(options: ProxyOptions, folder: Path, load: DecodingLoad) -> EngineControl:
    """Start the command."""
    launcher = await Launcher.of(options.command, options.drafts or {}, folder, options.flags)
    return await launched(launcher, load, options.longest, options.length)


@contextmanager
def _cancelled_by_signal(task: asyncio.Future[EngineControl]) -> Iterator[None]:
    """Cancel a task on a signal to end, within the block."""
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
