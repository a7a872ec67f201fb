"""The schemes of the contest: one setting with an escape, which is the product's, and a staircase.

The third, a plan with a row for each load, was the product's until commit d7283e1a: the table has the
studies of that commit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jouletune_bench.llm import Request, ServedRequest
from jouletune_bench.llm.requests import repeated
from tests.bench.load.escape import QUEUE_S, Escaping, escaping, queue_of
from tests.bench.load.judge import Cell
from tests.bench.load.ours import TUNED_S, Follows, Pace, tune_on
from tests.bench.load.play import Controller
from tests.bench.load.servers import Limits, Opener, shared, windows
from tests.bench.load.staircase import Staircase
from tuner.core import Setting

PLAN, STAIRS, ONE = "plan + escape", "staircase", "single + escape"
LONGEST_S = 12 * 3600.0
"""The longest time of the staircase."""
LONG_S = 300.0
"""The length of windows: longer ones differ less in load."""
SETTLED_S = 2 * 3600.0
"""A setting held for this time, or for the trace, is not confirmed again at a higher load."""


@dataclass(frozen=True, slots=True)
class Studied:
    """A study's result: the controller and the server of each judged run, and the cost of the study.

    `tails` is the larger p99 relative to its limit of each window of 299 requests; `held` is its setting as
    text.
    """

    controller: Callable[[], Controller]
    open_server: Opener
    hours: float
    tails: Sequence[float]
    held: str


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
    """Run the product's study that follows the load; the agent's runner holds its setting."""
    server = Escaping(cell.open_server(_stream(cell, seed), seed), math.inf)
    settled_s = max(SETTLED_S, cell.task.tuned_s)
    pace = Pace(window_s=LONG_S, settled_s=settled_s)
    tuned = tune_on(server, cell.limits, seed, folder, pace)
    tried = [r for r in server.answered if r.arrival_s < tuned.ended_s]
    return Studied(
        lambda: Follows(tuned.plan, folder),
        cell.open_server,
        tuned.hours,
        _tails(tried, cell.limits),
        " ".join(f"<{r.below:.3g}:{_mhz(r.setting)}" for r in tuned.plan.rows) + f" {tuned.reason}",
    )


SCHEMES: dict[str, Callable[[Cell, int, Path], Studied]] = {
    ONE: by_one,
    STAIRS: by_stairs,
}
LINES = {ONE: 0, STAIRS: 1, PLAN: 2}
"""The order of the schemes by the lines of product that each needs, the fewest first."""


def _stream(cell: Cell, seed: int) -> list[Request]:
    """Return a seed's requests of the half for tuning, repeated for longer than any study."""
    requests = shared(cell.task.tuning, cell.share, seed)
    turns = int(1.5 * TUNED_S / max(1.0, requests[-1].arrival_s)) + 1
    return list(repeated(requests, turns))


def _tails(served: Sequence[ServedRequest], limits: Limits) -> list[float]:
    return [limits.worst(ttft, tpot) for _, _, ttft, tpot in windows(served)]


def _mhz(setting: Setting) -> str:
    return f"{float(next(iter(setting.values()))):.0f}"
