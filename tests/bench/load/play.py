"""Plays requests to a server under a controller, and returns its energy and the broken limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jouletune_bench.llm import Request, ServedRequest, ServesRequests
from tests.bench.load.servers import WARM_S, Limits, Opener, quantile, windows
from tuner.core import Setting

DRAIN_S = 900.0
"""The longest wait in s for the answers to the counted requests."""


class Controller(Protocol):
    """Sets a server by its observations of it; `tick_s` is the time between two observations."""

    @property
    def tick_s(self) -> float:
        """The seconds until the next observation."""
        ...

    def begin(self, server: ServesRequests) -> None:
        """Begin with a server that has just been opened."""
        ...

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Observe and set; `served` are the requests answered since the last call."""
        ...


class Fixed:
    """Leaves a server at one clock: the given one or its default."""

    tick_s = 300.0

    def __init__(self, setting: Setting | None = None) -> None:
        """Hold a setting."""
        self.setting = setting

    def begin(self, server: ServesRequests) -> None:
        """Set it once."""
        if self.setting is not None:
            server.apply(self.setting)

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Played:
    """One run: joules over its counted seconds, and the windows of the requests that arrived in them."""

    energy_j: float
    seconds: float
    windows: tuple[tuple[float, float, float, float], ...]
    ttft_p99_s: float
    answered: int
    unanswered: int

    @property
    def watts(self) -> float:
        """The mean power."""
        return self.energy_j / self.seconds

    def ratios(self, limits: Limits) -> list[tuple[float, float, float]]:
        """Return start, end and the larger p99 relative to its limit of every window of 299 requests."""
        return [(a, b, limits.worst(t, p)) for a, b, t, p in self.windows]


def play(
    open_server: Opener,
    requests: Sequence[Request],
    controller: Controller,
    seed: int,
    until_s: float,
    warm_s: float = WARM_S,
) -> Played:
    """Play requests until a time, and wait for the answers to the earlier ones."""
    server = open_server(requests, seed)
    controller.begin(server)
    _run(server, controller, warm_s, [])
    before = server.counters()
    served: list[ServedRequest] = []
    _run(server, controller, until_s, served)
    after = server.counters()
    due = sum(warm_s <= r.arrival_s < until_s for r in requests)
    mine = [s for s in served if warm_s <= s.arrival_s < until_s]
    end = server.monotonic() + DRAIN_S
    while len(mine) < due and server.monotonic() < end:
        late: list[ServedRequest] = []
        _run(server, controller, server.monotonic() + 10.0, late)
        mine += [s for s in late if warm_s <= s.arrival_s < until_s]
    return Played(
        after.energy_j - before.energy_j,
        after.now_s - before.now_s,
        tuple(windows(mine)),
        quantile([s.ttft_s for s in mine], 0.99) if mine else math.inf,
        len(mine),
        due - len(mine),
    )


def _run(
    server: ServesRequests, controller: Controller, until_s: float, served: list[ServedRequest]
) -> None:
    while server.monotonic() < until_s - 1e-9:
        server.sleep(min(controller.tick_s, until_s - server.monotonic()))
        new = server.take()
        served += new
        controller.tick(server, new)
