"""Every file and every call of systemd fails for a service's actuator; its own command is restored."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agents.actuator.driver import DriverProcess, Value, _answered, _described
from tests.chaos.fault_scenes import (
    Count,
    FaultScene,
    failed_everywhere,
    told,
    trials_around_a_hold,
)
from tests.chaos.faults import Faults, full
from tests.chaos.test_units_killed import TERMS, TRIED, UnitTheatre
from tests.fake_systemd import COMMAND, NAME, FakeSystemd
from tuner.errors import ActuationError

pytestmark = pytest.mark.timeout(1200)  # hundreds of scenes
OPERATORS = f"{COMMAND} --mlock on"
WRITES = ("write_text", "mkdir", "replace", "unlink")
Fault = Callable[[FakeSystemd, Callable[[], str]], str]
"""The fault in place of a call of systemd."""


def refuses(systemd: FakeSystemd, call: Callable[[], str]) -> str:
    raise ActuationError("Access denied")


def hangs(systemd: FakeSystemd, call: Callable[[], str]) -> str:
    raise TimeoutError


def done_but_unheard(systemd: FakeSystemd, call: Callable[[], str]) -> str:
    call()
    raise ActuationError("Connection reset by peer")


def is_masked(systemd: FakeSystemd, call: Callable[[], str]) -> str:
    systemd.goes_wrong(masked=True)
    return call()


def is_gone(systemd: FakeSystemd, call: Callable[[], str]) -> str:
    systemd.goes_wrong(gone=True)
    return call()


def gets_an_operators_command(systemd: FakeSystemd, call: Callable[[], str]) -> str:
    """The change stays, like an operator's edit; our next daemon-reload loads it."""
    folder = systemd.folders[0]
    folder.mkdir(exist_ok=True)
    (folder / "own.conf").write_text(f"[Service]\nExecStart=\nExecStart={OPERATORS}\n")
    return call()


def tells_nothing(systemd: FakeSystemd, call: Callable[[], str]) -> str:
    """Questions get an empty answer; commands are carried out."""
    call()
    return ""


FAULTS = (
    refuses,
    hangs,
    done_but_unheard,
    is_masked,
    is_gone,
    gets_an_operators_command,
    tells_nothing,
)


@dataclass
class FaultyTheatre(UnitTheatre):
    """A service whose operator may have changed its command meanwhile."""

    def renew_hardware(self) -> None:
        (self.systemd.folders[0] / "own.conf").unlink(missing_ok=True)
        super().renew_hardware()

    def mend(self) -> None:
        self.systemd.goes_wrong(masked=False, gone=False)

    def check_original(self) -> str:
        own = (self.systemd.folders[0] / "own.conf").exists()
        state, allowed = self.systemd.state, (COMMAND, OPERATORS) if own else (COMMAND,)
        # A half-written file may stay, as of the journal; systemd does not read its name.
        left = [name for name in self.systemd.left if not name.endswith(".new")]
        if state["running"] not in allowed or left:
            return f"left at {state}, {left}"
        return "a journal is left" if self.journalled else ""


class UnitHand(DriverProcess):
    """Calls the driver in this process; its files or its systemd fail at the chosen point."""

    def __init__(self, theatre: FaultyTheatre, faults: Faults, fault: Fault | None) -> None:
        super().__init__(lambda: (), 1.0)
        self._drivers = {d.uuid: d for d in theatre.drivers(None)}
        self._theatre, self._faults, self._fault = theatre, faults, fault

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        systemd, faults, fault = self._theatre.systemd, self._faults, self._fault
        with full_disk(systemd, faults) if fault is None else faulty(systemd, faults, fault):
            try:
                return _answered(self._drivers, verb, uuid, *details)
            except OSError as error:  # as the driver's process reports it
                raise ActuationError(f"the driver failed: {error!r}") from error


@contextmanager
def full_disk(systemd: FakeSystemd, faults: Faults) -> Iterator[None]:
    """Make every change of a file in /run a point without space; a removal needs no space."""
    run = str(systemd.root / "run")

    def failing(name: str) -> Callable[..., Any]:
        before = getattr(Path, name)

        def checked(path: Path, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if str(path).startswith(run) and faults.strikes(name, path.name):
                refused = OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
                raise refused if name == "unlink" else full(path)
            return before(path, *args, **kwargs)

        return checked

    with ExitStack() as patched:
        for name in WRITES:
            patched.enter_context(mock.patch.object(Path, name, failing(name)))
        yield


@contextmanager
def faulty(systemd: FakeSystemd, faults: Faults, fault: Fault) -> Iterator[None]:
    """Make every call of systemd a point."""
    called = FakeSystemd.call

    def calling(self: FakeSystemd, *words: str) -> str:
        if faults.strikes("systemctl", " ".join(words)):
            return fault(systemd, lambda: called(self, *words))
        return called(self, *words)

    with mock.patch.object(FakeSystemd, "call", calling):
        yield


class UnitScene(FaultScene):
    """Two trials around a hold, then the release, on a service."""

    theatre: FaultyTheatre
    uuid, tried = f"unit:{NAME}", TRIED[0]
    requests = trials_around_a_hold(*TRIED)

    def hand(self) -> UnitHand:
        return UnitHand(self.theatre, self.faults, self.kind)

    def start(self) -> None:
        if self.faults.mended:
            self.theatre.mend()
        (driver,) = self.theatre.drivers(None)
        self.found = [_described(driver)]
        super().start()

    def settle(self) -> None:
        if self.faults.mended:
            self.theatre.mend()
        super().settle()

    def usable(self) -> str:
        """Try twice: the first trial fails if it loads an operator's edit."""
        return super().usable() and super().usable()


@pytest.mark.promise(
    "a full disk, or a driver that refuses, hangs or answers nonsense, transient or permanent"
)
@pytest.mark.parametrize("lasting", [False, True], ids=told)
@pytest.mark.parametrize("fault", [None, *FAULTS], ids=told)
def test_a_fault_anywhere_leaves_the_service_at_its_own_command_once_it_is_over(
    fault: Fault | None, lasting: bool, tmp_path: Path, count: Count
) -> None:
    theatre = FaultyTheatre(tmp_path / "t", systemd=FakeSystemd(tmp_path / "root"))
    assert theatre.config.devices == (TERMS,)
    step = 3 if lasting else 1
    struck, problems = failed_everywhere(UnitScene, theatre, fault, lasting=lasting, step=step)
    count(f"fault: unit, {told(fault)}, {told(lasting)}", struck, len(problems))
    assert struck >= 10
    assert not problems
