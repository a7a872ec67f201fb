"""Pairs of inference and fine-tuning with made-up, non-linear interference, in virtual time.

While fine-tuning runs, a request takes longer in the way of its pair: it shares the cores, waits for
the running step, sometimes loses its cache, or finds a queue. Judged against the largest constant share
of the time at which at most a twentieth of the windows is above the limit.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.finetuning.beside import LOOK_S, TURN_S
from agents.finetuning.pacing import FineTuningPacer

WINDOW_S, WINDOWS = 5.0, 120
TURNS, LOOKS = round(WINDOW_S / TURN_S), round(WINDOW_S / LOOK_S)
RATE_PER_S = 60.0
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ALLOWED = 0.05
KINDS = ("shares the cores", "waits for a step", "loses its cache", "queues")


@dataclass
class Pair:
    """An inference whose requests take `base_ms`, and the effect of fine-tuning on them."""

    kind: str
    base_ms: float
    harm: float
    limit_ms: float
    rng: random.Random
    _free_s: float = 0.0

    def latency_ms(self, at_s: float, *, running: bool) -> float:
        """Return the latency of a request that arrives now, in ms."""
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


def _never(turn: int, tail: float | None) -> bool:
    return False


def _window(one: Pair, runs: Callable[[int, float | None], bool]) -> list[float]:
    """Return the latencies of a window; before each turn it is decided whether fine-tuning runs."""
    shown: list[float] = []
    tail: float | None = None
    one._free_s, at_s = 0.0, one.rng.expovariate(RATE_PER_S)
    for turn in range(TURNS):
        if turn % (TURNS // LOOKS) == 0:
            tail = _tail(shown)
        running = runs(turn, tail)
        while at_s < (turn + 1) * TURN_S:
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
    """Return the pacer's result on a pair, and that of the best constant share."""
    one = pair(seed)
    pacer, above, ran = FineTuningPacer(one.limit_ms), 0, 0
    for _ in range(WINDOWS):
        turns: list[bool] = []

        def runs(turn: int, tail: float | None, turns: list[bool] = turns) -> bool:
            turns.append(pacer.look(tail, turn / TURNS))
            return turns[-1]

        tail = _tail(_window(one, runs))
        pacer.window(tail, ran=any(turns))
        above += any(turns) and tail is not None and tail > one.limit_ms
        ran += sum(turns)
    return PairResult(one.kind, above / WINDOWS, ran / (WINDOWS * TURNS), _oracle(one))


def _oracle(one: Pair) -> float:
    best = 0.0
    for share in SHARES:
        tails = [
            _tail(_window(one, lambda turn, tail, s=share: int((turn + 1) * s) > int(turn * s)))  # type: ignore[misc]
            for _ in range(WINDOWS)
        ]
        if sum(t is not None and t > one.limit_ms for t in tails) > ALLOWED * WINDOWS:
            break
        best = share
    return best
