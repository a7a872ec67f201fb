"""A real service on this machine under a moving open load: fixed settings, the best per load, our plan."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from jouletune_bench.llm import Request, ServedRequest, ServesRequests
from tests.bench.load.judge import MOST_ABOVE, OURS
from tests.bench.load.ours import Follows, Pace, tune_on
from tests.bench.load.play import Controller, Fixed, play
from tests.bench.load.rounds import KNOB, ROUNDS, RoundServer
from tests.bench.load.servers import Limits, quantile

LOW_PER_S, HIGH_PER_S = 36.0, 140.0
"""A rate that 2 rounds a second serve, and one that needs 8: no setting is best at both."""
PHASE_S = 36.0
TIMES = 1
"""The number of times that each arm gets the low and the high load, the low one first."""
SLACK = 1.5
"""The limit on the p99, as a multiple of that of the fewest rounds at the low load, which also includes
delays by other programs.
"""
PACE = Pace(window_s=8.0, max_window_s=24.0, rest_s=2.0, tuned_s=330.0, settled_s=75.0, trials=8)
SEED = 1


def moving(seconds: float, seed: int) -> list[Request]:
    """Return a Poisson process whose rate alternates between low and high."""
    rng, now, requests = Random(f"{seed}/moving"), 0.0, list[Request]()
    while now < seconds:
        rate = HIGH_PER_S if phase(now) % 2 else LOW_PER_S
        now += rng.expovariate(rate)
        requests.append(Request(now, 1, 1))
    return requests


def phase(now_s: float) -> int:
    """Return the number of a phase of the load, from 0; those of odd numbers are high."""
    return int(now_s / PHASE_S)


@dataclass
class ByPhase:
    """A controller whose energy and answers are recorded for each phase of the load."""

    inner: Controller
    cpu_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    latencies_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    _last: tuple[float, float] = (0.0, 0.0)

    @property
    def tick_s(self) -> float:
        """At most half a second."""
        return min(0.5, self.inner.tick_s)

    def begin(self, server: ServesRequests) -> None:
        """Begin."""
        self.inner.begin(server)
        now = server.counters()
        self._last = now.now_s, now.energy_j

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Observe, and count the energy since the last observation."""
        self.inner.tick(server, served)
        now = server.counters()
        at, before = self._last
        self.cpu_s[phase((at + now.now_s) / 2.0)] += now.energy_j - before
        self._last = now.now_s, now.energy_j
        for each in served:
            self.latencies_s[phase(each.arrival_s)].append(each.latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealArm:
    """The result of an arm: CPU seconds, and the p99 of each window of 299 requests.

    `low` and `high` are the p99 and the CPU seconds of the first phase of each load, when no request of an
    earlier phase waits, even at a setting that is too slow for the high load.
    """

    arm: str
    cpu_s: float
    p99_s: tuple[float, ...]
    unanswered: int
    low: tuple[float, float]
    high: tuple[float, float]

    def above(self, limit_s: float) -> float:
        """Return the share of windows above a limit."""
        return sum(p99_s > limit_s for p99_s in self.p99_s) / max(1, len(self.p99_s))

    def told(self, limit_s: float) -> dict[str, object]:
        """Return the arm in the form of the result."""
        worst = max(self.p99_s, default=0.0) / limit_s
        return {**asdict(self), "above": self.above(limit_s), "worst": worst}


def real(say: Callable[[str], None]) -> dict[str, object]:
    """Judge fixed settings, tune, and follow the plan; return the result of each."""
    seconds = 2.0 * PHASE_S * TIMES
    requests, busy = moving(seconds, SEED), os.getloadavg()[0]
    fixed: list[RealArm] = []
    for rounds in ROUNDS:
        fixed.append(_arm(f"{KNOB} = {rounds}", Fixed({KNOB: rounds}), requests, seconds))
        say(f"{fixed[-1]}")
    limit_s = SLACK * fixed[0].low[0]
    server = RoundServer(moving(PACE.tuned_s + 2.0 * PHASE_S, SEED + 1), SEED)
    with tempfile.TemporaryDirectory() as folder, closing(server):
        tuned = tune_on(server, Limits(limit_s, limit_s), SEED, Path(folder), PACE)
    say(f"{tuned}")
    with tempfile.TemporaryDirectory() as folder:
        ours = _arm(OURS, Follows(tuned.plan, Path(folder)), requests, seconds)
    say(f"{ours}")
    return {
        "rates_per_s": (LOW_PER_S, HIGH_PER_S),
        "phase_s": PHASE_S,
        "limit_ms": 1000.0 * limit_s,
        "load_averages": (busy, os.getloadavg()[0]),
        "arms": [arm.told(limit_s) for arm in (*fixed, ours)],
        **compared(fixed, ours, limit_s),
        "plan": [(row.below, row.setting[KNOB]) for row in tuned.plan.rows],
        "trials": tuned.trials,
        "tuned_s": 3600.0 * tuned.hours,
        "note": f"{tuned.phase}: {tuned.reason}",
    }


def compared(fixed: Sequence[RealArm], ours: RealArm, limit_s: float) -> dict[str, object]:
    """Return the best single setting, the best per load, and the share of the difference that ours
    captures.

    The best per load is composed of the fixed runs, so its changes cost nothing. None if no single setting
    keeps the limit, or none per load takes less energy.
    """
    keeps = [arm for arm in fixed if arm.above(limit_s) <= MOST_ABOVE]
    single = min(keeps, key=lambda arm: arm.cpu_s, default=None)
    low = [arm.low[1] for arm in fixed if arm.low[0] <= limit_s]
    high = [arm.high[1] for arm in fixed if arm.high[0] <= limit_s]
    if single is None or not (low and high):
        return {"single": None, "per_load_cpu_s": None, "captured": None}
    least_s = TIMES * (min(low) + min(high))
    way = single.cpu_s - least_s
    return {
        "single": single.arm,
        "per_load_cpu_s": least_s,
        "captured": (single.cpu_s - ours.cpu_s) / way if way > 0.0 else None,
    }


def _arm(name: str, inner: Controller, requests: Sequence[Request], seconds: float) -> RealArm:
    """Play the moving load once."""
    opened: list[RoundServer] = []

    def opener(mine: Sequence[Request], seed: int) -> RoundServer:
        opened.append(RoundServer(mine, seed))
        return opened[-1]

    phased = ByPhase(inner)
    try:
        run = play(opener, requests, phased, SEED, seconds, warm_s=0.0)
    finally:
        for server in opened:
            server.close()
    low, high = (
        (quantile(phased.latencies_s[number], 0.99), phased.cpu_s[number]) for number in (0, 1)
    )
    return RealArm(
        arm=name,
        cpu_s=run.energy_j,
        p99_s=tuple(p99_s for _, _, p99_s, _ in run.windows),
        unanswered=run.unanswered,
        low=low,
        high=high,
    )
