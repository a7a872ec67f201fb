"""The rivals that react to observations: ondemand, a PI controller on the slack, and AGFT's bandit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from jouletune_bench.llm import ServedRequest, ServerCounters, ServesRequests
from tests.bench.load.servers import Limits, quantile
from tuner.core import Setting


def clocks(server: ServesRequests) -> list[Setting]:
    """Return all settings of a server by its first knob, slowest first."""
    name = server.space.knobs[0].name
    return sorted(server.space.grid(), key=lambda s: float(s[name]))


class Ondemand:
    """Linux's ondemand on a GPU's utilisation: above 80 % the highest clock, else in proportion.

    Source: drivers/cpufreq/cpufreq_ondemand.c (up_threshold 80); reads once a second, like NVML.
    """

    tick_s = 1.0
    UP = 0.80

    def begin(self, server: ServesRequests) -> None:
        """Start at the default."""
        self._clocks = clocks(server)
        self._last = server.counters()

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Set the clock for the last second's utilisation."""
        now, last = server.counters(), self._last
        self._last = now
        busy = (now.busy_s - last.busy_s) / max(1e-9, now.now_s - last.now_s)
        share = 1.0 if busy > self.UP else busy / self.UP
        top = float(next(iter(self._clocks[-1].values())))
        wanted = next(
            s for s in self._clocks if float(next(iter(s.values()))) >= share * top - 1e-9
        )
        if server.read() != wanted:
            server.apply(wanted)


class Slack:
    """A PI controller that keeps the last minute's p99 at 0.85 of its limit, with the given gains."""

    tick_s = 2.0
    AIM = 0.85
    SEEN_S = 60.0

    def __init__(self, limits: Limits, proportional: float, integral: float) -> None:
        """Keep these limits."""
        self._limits, self._kp, self._ki = limits, proportional, integral

    def begin(self, server: ServesRequests) -> None:
        """Start at the highest clock."""
        self._clocks = clocks(server)
        self._share, self._error = 1.0, 0.0
        self._seen: deque[tuple[float, ServedRequest]] = deque()

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Move the clock by the error and by its change."""
        now = server.monotonic()
        self._seen.extend((now, each) for each in served)
        while self._seen and self._seen[0][0] < now - self.SEEN_S:
            self._seen.popleft()
        if not self._seen:
            return
        ttft = quantile([s.ttft_s for _, s in self._seen], 0.99)
        tpot = quantile([s.tpot_s for _, s in self._seen], 0.99)
        error = min(1.0, self._limits.worst(ttft, tpot) - self.AIM)
        step = self._ki * error + self._kp * (error - self._error)
        self._error = error
        self._share = min(1.0, max(0.0, self._share + step))
        wanted = self._clocks[round(self._share * (len(self._clocks) - 1))]
        if server.read() != wanted:
            server.apply(wanted)


class Agft:
    """AGFT (arXiv 2508.01744): a contextual LinUCB over clocks, rewarded by the energy-delay product.

    After its authors' code (github.com/SusCom-Lab/AGFT at 0ad25bf): config.yaml and src/. Windows of 0.8 s;
    seven features, standardised online; one linear model for each clock; a first sweep from the highest
    clock down; reward 2 · (1 − EDP / 0.9 of the mean of ten windows unlocked), at least −2; α from 10 by
    e^(−0.02 per round) to 0.1. In the first 60 rounds a clock with a mean reward of −1.2 over three rounds
    is dropped; every 20 rounds, from 6 rounds of it on, one with an EDP four deviations above the best. If
    a dropped clock is below half of the highest, all clocks below it are dropped. Its limits (1,000 s and
    0.8 s) never bind. No cache hits here: that feature is 0.
    """

    tick_s = 0.8
    FEATURES = 7

    def __init__(self) -> None:
        """Start without knowledge, which is kept from server to server."""
        self._arms: list[Setting] = []
        self._rounds, self._sweep = 0, 0
        self._unlocked: list[float] = []
        self._mean = np.zeros(self.FEATURES)
        self._m2 = np.zeros(self.FEATURES)
        self._count = 0
        self._pending: tuple[int, np.ndarray] | None = None

    def begin(self, server: ServesRequests) -> None:
        """Begin with a server; the clocks are those of the first server."""
        if not self._arms:
            self._arms = list(reversed(clocks(server)))
            size = len(self._arms)
            self._inverse = np.repeat(np.eye(self.FEATURES)[None] / 5.0, size, axis=0)
            self._b = np.zeros((size, self.FEATURES))
            self._alive = np.ones(size, dtype=bool)
            self._rewards = np.zeros(size)
            self._tries = np.zeros(size)
            self._edps: list[list[float]] = [[] for _ in self._arms]
        self._last = server.counters()
        self._pending = None

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Reward the last window's clock, and choose the next."""
        now, last = server.counters(), self._last
        self._last = now
        delays = [s.tpot_s for s in served if s.tpot_s > 0.0]
        context = self._context(now, last, now.waiting)
        if delays:
            edp = (now.energy_j - last.energy_j) * sum(delays) / len(delays)
            if len(self._unlocked) < 10:
                self._unlocked.append(edp)
                return
            if self._pending is not None:
                self._learn(*self._pending, edp)
        elif len(self._unlocked) < 10:
            return
        arm = self._choose(context)
        self._pending = (arm, context)
        if server.read() != self._arms[arm]:
            server.apply(self._arms[arm])

    def _context(self, now: ServerCounters, last: ServerCounters, waiting: int) -> np.ndarray:
        tokens, seconds = now.tokens - last.tokens, max(1e-9, now.now_s - last.now_s)
        decoded = (now.decoding_s - last.decoding_s) / seconds
        features = np.array(
            [
                float(waiting > 0),
                max(0.0, tokens - decoded),
                decoded,
                tokens / max(1.0, decoded),
                float(now.decoding),
                decoded / 2.56,
                0.0,
            ]
        )
        self._count += 1
        delta = features - self._mean
        self._mean = self._mean + delta / self._count
        self._m2 = self._m2 + delta * (features - self._mean)
        sd = np.sqrt(self._m2 / max(1, self._count - 1)) if self._count > 1 else 1.0
        return np.clip((features - self._mean) / (sd + 1e-8), -3.0, 3.0)

    def _learn(self, arm: int, context: np.ndarray, edp: float) -> None:
        base = 0.9 * sum(self._unlocked) / len(self._unlocked)
        reward = 2.0 * (1.0 - min(2.0, edp / base))
        inverse = self._inverse[arm]
        x = inverse @ context
        self._inverse[arm] = inverse - np.outer(x, x) / (1.0 + context @ x)
        self._b[arm] += reward * context
        self._rewards[arm] += reward
        self._tries[arm] += 1
        self._edps[arm].append(edp)
        self._rounds += 1
        poor = self._tries[arm] >= 3 and self._rewards[arm] / self._tries[arm] <= -1.2
        if self._rounds <= 60 and poor:
            self._prune(arm)
        if self._rounds >= 30 and self._rounds % 20 == 0:
            self._prune_by_edp()

    def _prune(self, arm: int) -> None:
        if self._alive.sum() <= 2:
            return
        self._alive[arm] = False
        if arm >= len(self._arms) // 2:
            self._alive[arm:] = False

    def _prune_by_edp(self) -> None:
        known = [i for i, e in enumerate(self._edps) if self._alive[i] and len(e) >= 6]
        means = {i: sum(self._edps[i]) / len(self._edps[i]) for i in known}
        if len(means) < 2:
            return
        best = min(means.values())
        gap = 4.0 * max(0.05, float(np.std(list(means.values()))))
        for arm, mean in means.items():
            if mean - best > gap:
                self._prune(arm)

    def _choose(self, context: np.ndarray) -> int:
        while self._sweep < len(self._arms):
            arm, self._sweep = self._sweep, self._sweep + 1
            if self._alive[arm]:
                return arm
        alpha = max(0.1, 10.0 * float(np.exp(-0.02 * self._rounds)))
        theta = np.einsum("aij,aj->ai", self._inverse, self._b)
        wide = np.einsum("i,aij,j->a", context, self._inverse, context)
        value = theta @ context + alpha * np.sqrt(np.maximum(wide, 1e-10))
        value[~self._alive] = -np.inf
        return int(np.argmax(value))
