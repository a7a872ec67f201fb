"""A scene in which an actuator's disk or driver fails at a point, and the search over all points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agents.actuator.device import Peer
from agents.actuator.driver import DriverProcess
from agents.actuator.journal import RestoreJournal
from tests.actuation import Direct, actuator_of
from tests.chaos.faults import Faults
from tests.chaos.theatre import BOOT, Theatre
from tuner.errors import TuningError

Count = Callable[[str, int, int], None]
Requests = Sequence[tuple[str, tuple[Any, ...]]]
"""Verbs of the actuator, each with its values after the device."""
PEER = Peer(1, 1, 7)
LATER_S = 120.0
"""Longer than any wait before the actuator tries again."""


class FaultScene:
    """An actuator with a fault, and a settable clock."""

    uuid: str
    tried: Mapping[str, Any]
    requests: Requests
    found: Sequence[Mapping[str, Any]] = ()

    def __init__(self, theatre: Theatre, faults: Faults, kind: Any) -> None:  # noqa: ANN401
        self.theatre, self.faults, self.kind, self.now = theatre, faults, kind, 0.0
        self.prepare()
        self.start()

    def prepare(self) -> None:
        """Look at the device, before the first actuator."""

    def hand(self) -> DriverProcess:
        """Return a driver that fails at the chosen point."""
        raise NotImplementedError

    def journal(self) -> RestoreJournal:
        return RestoreJournal(self.theatre.journal)

    def start(self) -> None:
        """Start an actuator: replay its journal, and make its grants."""
        hand = self.hand()
        self.actuator = Direct(
            actuator_of(
                self.theatre.config,
                lambda: hand,
                self.journal(),
                BOOT,
                lambda: self.now,
                self.found,
            )
        )
        self.actuator.replay()

    def play(self) -> None:
        """Send all requests, then disconnect; refusals are ignored."""
        for verb, details in self.requests:
            with suppress(Exception):  # as whoever answers a peer contains it
                self.ask(verb, *details)
        self.actuator.gone(PEER)

    def ask(self, verb: str, *details: Any) -> None:  # noqa: ANN401
        getattr(self.actuator, verb)(PEER, self.uuid, *details)

    def cool(self) -> None:
        """End the hardware's own change, which is no fault."""

    def settle(self) -> None:
        """Let time pass, and run the actuator's periodic tasks."""
        for _ in range(3):
            self.now += LATER_S
            self.actuator.tick()

    def usable(self) -> str:
        """Return why the device is not usable as before; empty if it is."""
        try:
            self.ask("acquire", 5.0)
            self.ask("apply", self.tried)
            self.ask("release")
        except TuningError as error:
            return f"not usable: {error}"
        return ""

    def problem(self, *, restarted: bool) -> str:
        """Play with the fault, end the fault, and return what is wrong then; empty if nothing is."""
        self.play()
        self.settle()
        self.faults.mended = True
        if restarted:
            self.start()
        self.settle()
        self.cool()
        self.settle()
        return self.theatre.check_original() or self.usable() or self.theatre.check_original()


def trials_around_a_hold(*settings: Mapping[str, Any]) -> Requests:
    """Return the requests of two trials around a hold, then the release; the last setting is held."""
    tried, tried_next, held = settings
    return (
        ("acquire", (5.0,)),
        ("apply", (tried,)),
        ("hold", (held, 1000.0)),
        ("acquire", (5.0,)),
        ("apply", (tried_next,)),
        ("release", ()),
    )


def failed_everywhere(
    scene: Callable[[Any, Faults, Any], FaultScene],
    theatre: Theatre,
    kind: object,
    *,
    lasting: bool,
    step: int = 1,
    most: int = 10_000,
) -> tuple[int, list[str]]:
    """Play a scene with a fault at each point; return how many were reached, and what was wrong.

    Only each `step`th point is played, and about `most`. The actuator is restarted after every other fault.
    """
    dry = scene(theatre, Faults(), kind)
    assert dry.problem(restarted=False) == ""
    problems: list[str] = []
    labels, struck = dry.faults.labels, 0
    step = max(step, len(labels) // most)
    for at in range(1, len(labels) + 1, step):
        theatre.renew_hardware()
        stage = scene(theatre, Faults(at, lasting=lasting), kind)
        problem = stage.problem(restarted=at // step % 2 == 0)
        struck += stage.faults.struck
        if problem:
            problems.append(f"{at} ({labels[at - 1]}): {problem}")
    return struck, problems


def told(fault: object) -> str:
    """Return a fault, or whether it lasts, as a test's id."""
    if isinstance(fault, bool):
        return "for good" if fault else "once"
    return getattr(fault, "__name__", "disk full").replace("_", " ")
