"""Times the engine without a server: so many requests decoding at all times, at a setting or by a plan."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.workloads.reference.text import corpus
from agents.workloads.reference.text.engine import TextEngine
from agents.workloads.reference.text.opening import open_decoder
from agents.workloads.reference.text.recipe import TrainingRecipe
from agents.workloads.reference.text.sequence import DecodingSequence
from agents.workloads.reference.text.tokenizer import encode
from agents.workloads.reference.text.totals import EngineTotals
from agents.workloads.reference.text.training import Progress
from tuner import malloc

TOKENS = 96
"""Of each request: with its prompt well within the context."""


@dataclass(frozen=True, slots=True)
class DecodingWindow:
    """A window: what the engine did, over how many seconds, and the share of the cores others took."""

    totals: EngineTotals
    seconds: float
    foreign: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens written per second."""
        return self.totals.tokens / self.seconds


class TextTimer:
    """The engine of a recipe under a closed loop of our own, trained first where need be."""

    def __init__(self, cache: Path, progress: Progress, stat: Path) -> None:
        malloc.keep()
        self.engine = TextEngine(open_decoder(TrainingRecipe(), cache, progress))
        self._stat = stat
        self._prompts = {kind: _endless(kind) for kind in ("source", "noise")}
        self._wanted, self._kind, self._inside = 0, "source", 0
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[TextTimer]:
        """Decode until the block ends."""
        self.engine.start()
        try:
            yield self
        finally:
            self._wanted = 0
            self.engine.close()

    def load(self, requests: int, kind: str = "source") -> None:
        """Keep so many requests decoding from now on, of source text or of noise."""
        with self._lock:
            self._wanted, self._kind = requests, kind
            missing = requests - self._inside
            self._inside += max(0, missing)
        for _ in range(missing):
            self._submit()

    def settle(self, requests: int, seconds: float = 0.3) -> None:
        """Offer a load, and wait until it decodes and a moment beyond."""
        self.load(requests)
        while self.engine.inside[1] != requests:
            time.sleep(0.005)
        time.sleep(seconds)

    def window(self, seconds: float) -> DecodingWindow:
        """Return what is done in so many seconds from now."""
        before, busy, own = self.engine.totals, self._busy_s(), time.process_time()
        began = time.perf_counter()
        time.sleep(seconds)
        after, spent = self.engine.totals, time.perf_counter() - began
        foreign_s = (self._busy_s() - busy) - (time.process_time() - own)
        share = max(0.0, foreign_s) / (spent * (os.cpu_count() or 1))
        return DecodingWindow(after.since(before), spent, share)

    def _submit(self) -> None:
        tokens = encode(next(self._prompts[self._kind]))
        self.engine.submit(DecodingSequence(tokens, TOKENS, self._deliver, ignores_eos=True))

    def _deliver(self, tokens: Sequence[int], ended: bool) -> None:
        if not ended:
            return
        with self._lock:
            again = self._inside <= self._wanted
            self._inside -= not again
        if again:
            self._submit()

    def _busy_s(self) -> float:
        fields = [int(x) for x in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _endless(kind: str) -> Iterator[str]:
    made = corpus.prompts(512, 0) if kind == "source" else corpus.noise(512, 0)
    return itertools.cycle(made)
