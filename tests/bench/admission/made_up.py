"""Pairs of inference and fine-tuning whose truth is made up and not linear, in virtual time.

While fine-tuning runs a request takes longer in the way of its pair: it shares the cores, waits for the
step under way, loses its cache now and then, or finds a queue. Judged against the largest constant share
of the time at which at most a twentieth of the windows is above the limit.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.finetuning.pacing import FineTuningPacer

LOOK_S, LOOKS, WINDOWS = 0.1, 50, 120
RATE_PER_S = 60.0
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ALLOWED = 0.05
KINDS = ("shares the cores", "waits for a step", "loses its cache", "queues")


@dataclass
class Pair:
    """An inference whose requests take `base_ms`, and what fine-tuning does to them."""

    kind: str
    base_ms: float
    harm: float
    limit_ms: float
    rng: random.Random
    _free_s: float = 0.0

    def latency_ms(self, at_s: float, *, running: bool) -> float:
        """Return what a request takes that arrives now."""
        own = self.base_ms * self.rng.lognormvariate(0.0, 0.1)
        if self.kind == "queues":
            begun = max(at_s, self._free_s)
            self._free_s = begun + own * (self.harm if running else 1.0) / 1000.0
            return 1000.0 * (self._free_s - at_s)
        if not running:
            return own
        if self.kind == "shares the cores":
            return own * self.harm
        if self.kind == "waits for a step":
            return own + self.rng.uniform(0.0, self.harm * self.base_ms)
        return own * (self.harm if self.rng.random() < 0.1 else 1.0)


def pair(seed: int) -> Pair:
    """Return a made-up pair."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    base_ms = rng.uniform(2.0, 8.0) if kind == "queues" else rng.uniform(2.0, 40.0)
    alone = Pair(kind, base_ms, 1.0, 0.0, random.Random(seed))
    p99 = statistics.quantiles([ms for _ in range(20) for ms in _window(alone, _never)], n=100)[98]
    return Pair(
        kind, base_ms, rng.uniform(1.2, 5.0), p99 * rng.uniform(1.2, 3.0), random.Random(seed)
    )


def _never(look: int, tail: float | None) -> bool:
    return False


def _window(one: Pair, runs: Callable[[int, float | None], bool]) -> list[float]:
    """Return the latencies of a window in which each look decides whether fine-tuning runs."""
    shown: list[float] = []
    one._free_s = 0.0
    for look in range(LOOKS):
        running = runs(look, _tail(shown))
        at_s = look * LOOK_S + one.rng.expovariate(RATE_PER_S)
        while at_s < (look + 1) * LOOK_S:
            shown.append(one.latency_ms(at_s, running=running))
            at_s += one.rng.expovariate(RATE_PER_S)
    return shown


def _tail(shown: Sequence[float]) -> float | None:
    return sorted(shown)[int(0.99 * len(shown))] if shown else None


@dataclass(frozen=True, slots=True)
class PairResult:
    """The share of windows above the limit, and of the time that fine-tuning ran, against the oracle's."""

    kind: str
    above: float
    ran: float
    oracle: float


def judged(seed: int) -> PairResult:
    """Return what the pacer does with a pair, and what could have run."""
    one = pair(seed)
    pacer, above, ran = FineTuningPacer(one.limit_ms), 0, 0
    for _ in range(WINDOWS):
        looks: list[bool] = []

        def runs(look: int, tail: float | None, looks: list[bool] = looks) -> bool:
            looks.append(pacer.look(tail))
            return looks[-1]

        tail = _tail(_window(one, runs))
        pacer.window(tail, ran=any(looks))
        above += tail is not None and tail > one.limit_ms
        ran += sum(looks)
    return PairResult(one.kind, above / WINDOWS, ran / (WINDOWS * LOOKS), _oracle(one))


def _oracle(one: Pair) -> float:
    best = 0.0
    for share in SHARES:
        tails = [
            _tail(_window(one, lambda look, tail, s=share: int((look + 1) * s) > int(look * s)))  # type: ignore[misc]
            for _ in range(WINDOWS)
        ]
        if sum(t is not None and t > one.limit_ms for t in tails) > ALLOWED * WINDOWS:
            break
        best = share
    return best
