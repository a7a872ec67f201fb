"""The actuator's surroundings without processes: direct calls of drivers, and a clock to advance."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agents.actuator.device import Peer
from agents.actuator.driver import DriverProcess, Value, _answered
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from agents.actuator.main import ActuatorService
from agents.actuator.requests import VERBS
from agents.devices.fake import knobs as fake

NO_GROUP = -1
T = TypeVar("T")


def all_granted(ranges: Mapping[str, Sequence[Value]]) -> Granted:
    """Return the grant of all that a device offers."""
    spans = {knob: values for knob, values in ranges.items() if values}
    whole = {k: tuple(v) if isinstance(v[0], str) else (v[0], v[-1]) for k, v in spans.items()}
    return Granted(match="*", grant=whole)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that waits for nobody, without an event loop: that takes 0.3 ms to make."""
    try:
        while work.send(None) is None:  # asyncio.sleep(0)
            pass
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("it waits, so that it needs asyncio.run")


class DirectHand(DriverProcess):
    """Calls the fake devices in a file from this process; `puts` records the writes."""

    def __init__(self, hardware: Path) -> None:
        super().__init__(lambda: (), 1.0)
        self._drivers = {d.uuid: d for d in fake.discover(str(hardware))}
        self.puts: list[tuple[str, Value | None]] = []

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        if verb == "write":
            self.puts.append((str(details[0]), details[1]))
        return _answered(self._drivers, verb, uuid, *details)


async def actuator_of(
    config: ActuatorConfig,
    hand: Callable[[], DriverProcess],
    originals: RestoreJournal,
    boot: str,
    now: Callable[[], float],
    found: Sequence[Mapping[str, Any]] = (),
) -> ActuatorService:
    """Return an actuator as its composition root makes it, with a separate hand for each device.

    Devices that were already `found` are not searched for again.
    """
    made = ActuatorService(config, hand, originals, boot, now, NO_GROUP)
    if found:
        made.finder = Found(found)
    made.adopt(await made.find())
    return made


class Found(DriverProcess):
    """Reports devices that were already found."""

    def __init__(self, about: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(lambda: (), 1.0)
        self._about = about

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        return self._about


class Once(list[int]):
    """Not stopped at the first query, stopped from then on."""

    asked = 0

    def __bool__(self) -> bool:
        self.asked += 1
        return self.asked > 1


class Direct:
    """An actuator called without a loop or a socket: one request, or one tick, after the other."""

    def __init__(self, made: Coroutine[Any, Any, ActuatorService]) -> None:
        self.inner = finished(made)
        self.status = self.inner.status

    def replay(self) -> dict[str, str]:
        return asyncio.run(self.inner.replay())  # it gathers all devices

    def close(self) -> None:
        for device in self.inner.devices.values():
            finished(device.close())

    def tick(self) -> None:
        for device in self.inner.devices.values():
            device.tick_s = 0.0
            finished(device.mind(Once()))

    def gone(self, peer: Peer) -> None:
        for device in self.inner.devices.values():
            finished(device.disconnected(peer))

    def __getattr__(self, verb: str) -> Callable[..., dict[str, Any]]:
        fields = VERBS[verb]

        def ask(peer: Peer, *values: object) -> dict[str, Any]:
            message = dict(zip(fields, values, strict=False))  # a trial's name may be left out
            run = finished if "device" in fields else asyncio.run
            return run(self.inner.ask(peer, verb, message))

        return ask


def listening(path: Path) -> socket.socket:
    """Return a bound, listening socket to pass to a process or a thread."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    listener.bind(str(path))
    path.chmod(0o660)
    listener.listen()
    return listener


def answers(path: Path) -> bool:
    """Return whether a process listens there: a socket is bound a moment before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        return line.connect_ex(str(path)) == 0


def replayed(
    terms: Granted,
    hand: Callable[[], DriverProcess],
    journal: Path,
    boot: str = "boot",
    now: Callable[[], float] = lambda: 0.0,
) -> Direct:
    """Return an actuator with one grant that has replayed its journal."""
    config = ActuatorConfig(devices=(terms,))
    direct = Direct(actuator_of(config, hand, RestoreJournal(journal), boot, now))
    direct.replay()
    return direct
