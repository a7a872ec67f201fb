"""The schemes of the contest: today's plan by load, a staircase, and one setting with an escape."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jouletune_bench.llm import Request, ServedRequest
from jouletune_bench.llm.requests import repeated
from tests.bench.load.escape import QUEUE_S, Escaping, escaping, queue_of
from tests.bench.load.judge import Cell
from tests.bench.load.ours import SIMULATED, TUNED_S, Follows, Pace, tune_on
from tests.bench.load.play import Controller, Fixed
from tests.bench.load.servers import Limits, Opener, quantile, shared, windows
from tests.bench.load.staircase import Staircase
from tuner.core import Setting

PLAN, STAIRS, ONE = "plan + escape", "staircase", "single + escape"
LONGEST_S = 12 * 3600.0
"""No study of the two new schemes takes longer."""
NEAR = 0.9
"""The study of one setting keeps this share of each limit: few windows do not show the p99 of all. Ours."""
LONG_S = 300.0
"""The length of its windows: the load differs less between longer ones."""
GROW_S, AGAIN_S = 300.0, 3600.0
"""A rate above the confirmed one is tried for so long, and after a failure again after so long."""
REACH = 1.1
"""A confirmed rate counts up to this multiple."""


@dataclass(frozen=True, slots=True)
class Studied:
    """A study's result: the controller and the server of each judged run, and the cost of the study.

    `tails` is the worse p99 over its limit of each of its windows of 299 requests; `held` is what it
    holds, in words.
    """

    controller: Callable[[], Controller]
    open_server: Opener
    hours: float
    tails: Sequence[float]
    held: str


def by_plan(cell: Cell, seed: int, folder: Path) -> Studied:
    """Run the study by load; the agent's runner, which has an escape, follows its plan."""
    server = Escaping(cell.open_server(_stream(cell, seed), seed), math.inf)
    pace = replace(SIMULATED, settled_s=max(SIMULATED.settled_s, cell.task.tuned_s))
    tuned = tune_on(server, cell.limits, seed, pace)
    served = [r for r in server.answered if r.arrival_s < 3600.0 * tuned.hours]
    rows = " ".join(f"<{r.below:.3g}:{_mhz(r.setting)}" for r in tuned.plan.rows)
    tails = _tails(served, cell.limits)
    return Studied(lambda: Follows(tuned.plan, folder), cell.open_server, tuned.hours, tails, rows)


def by_stairs(cell: Cell, seed: int, folder: Path) -> Studied:
    """Learn by the staircase, on a server with the escape."""
    requests, learnt = _stream(cell, seed), Staircase(cell.limits)
    queue = queue_of(cell.open_server, requests, seed, QUEUE_S)
    server = Escaping(cell.open_server(requests, seed), queue)
    learnt.begin(server)
    while server.monotonic() < LONGEST_S and not learnt.done:
        server.sleep(learnt.tick_s)
        learnt.tick(server, server.take())
    learnt.held = True
    return Studied(
        lambda: copy.deepcopy(learnt),
        escaping(cell.open_server, queue),
        server.monotonic() / 3600.0,
        _tails(server.answered, cell.limits),
        " ".join(f"{k}:{s.place}" for k, s in sorted(learnt.stairs.items())),
    )


def by_one(cell: Cell, seed: int, folder: Path) -> Studied:
    """Run the product's study of one setting on a server with the escape, then try it at higher rates."""
    requests = _stream(cell, seed)
    queue = queue_of(cell.open_server, requests, seed, QUEUE_S)
    server = Escaping(cell.open_server(requests, seed), queue)
    kept = Limits(NEAR * cell.limits.ttft_s, NEAR * cell.limits.tpot_s)
    pace = Pace(window_s=LONG_S, settled_s=600.0, tuned_s=LONGEST_S)
    tuned = tune_on(server, kept, seed, pace, by="")
    setting = tuned.plan.rows[0].setting
    server.apply(setting)
    hours = _grown(server, kept, tuned.hours)
    served = [r for r in server.answered if r.arrival_s < 3600.0 * hours]
    return Studied(
        lambda: Fixed(setting),
        escaping(cell.open_server, queue, server.above),
        hours,
        _tails(served, cell.limits),
        f"{_mhz(setting)} up to {server.above:.3g}/s, queue {queue:.0f}",
    )


SCHEMES: dict[str, Callable[[Cell, int, Path], Studied]] = {
    ONE: by_one,
    STAIRS: by_stairs,
    PLAN: by_plan,
}
LINES = {ONE: 0, STAIRS: 1, PLAN: 2}
"""The order of the schemes by the lines of product that each needs, the fewest first."""


def _stream(cell: Cell, seed: int) -> list[Request]:
    """Return a seed's requests of the half to tune on, repeated for longer than any study."""
    requests = shared(cell.task.tuning, cell.share, seed)
    turns = int(1.5 * TUNED_S / max(1.0, requests[-1].arrival_s)) + 1
    return list(repeated(requests, turns))


def _grown(server: Escaping, kept: Limits, hours: float) -> float:
    """Try the setting at higher rates as they come; return the hour of the last success."""
    server.above, failed_s = REACH * server.top, -math.inf
    while server.monotonic() < LONGEST_S:
        server.sleep(5.0)
        server.take()
        now = server.monotonic()
        if server.rate <= server.above or now - failed_s < AGAIN_S:
            continue
        before, server.above = server.above, math.inf
        count, server.top = len(server.answered), server.rate
        server.sleep(GROW_S)
        server.take()
        tried = [kept.worst(s.ttft_s, s.tpot_s) for s in server.answered[count:]]
        if tried and quantile(tried, 0.99) <= 1.0:
            server.above, hours = REACH * server.top, server.monotonic() / 3600.0
        else:
            server.above, failed_s = before, now
    return hours


def _tails(served: Sequence[ServedRequest], limits: Limits) -> list[float]:
    return [limits.worst(ttft, tpot) for _, _, ttft, tpot in windows(served)]


def _mhz(setting: Setting) -> str:
    return f"{float(next(iter(setting.values()))):.0f}"
