"""Times the engine without a server: a constant number of decoding requests, at a setting or by a plan."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.text import corpus
from tests.engines.text.engine import TextEngine
from tests.engines.text.opening import open_decoder
from tests.engines.text.recipe import TrainingRecipe
from tests.engines.text.sequence import DecodingSequence
from tests.engines.text.tokenizer import encode
from tests.engines.text.totals import EngineTotals
from tests.engines.text.training import Progress
from tuner import process_memory

TEXTS = 512
TOKENS = 96
"""The tokens of each request; with its prompt they are well within the context."""
LOOK_S = 0.002
RANDOM = 20.0
"""At this temperature all bytes are equally likely, so no sequence repeats."""


@dataclass(frozen=True, slots=True)
class EngineWindow:
    """A window: the engine's totals, its seconds, and the share of the cores that other programs used."""

    totals: EngineTotals
    seconds: float
    foreign: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens written per second."""
        return self.totals.tokens / self.seconds


class TextTimer:
    """The engine of a recipe under our closed loop, trained first if necessary."""

    def __init__(self, cache: Path, progress: Progress, stat: Path) -> None:
        process_memory.keep()
        self.engine = TextEngine(open_decoder(TrainingRecipe(), cache, progress))
        self._stat = stat
        self._prompts = itertools.cycle(corpus.prompts(TEXTS, 0))
        self._wanted, self._random = 0, False
        self._live: set[DecodingSequence] = set()
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[TextTimer]:
        """Decode until the block ends."""
        self.engine.start()
        try:
            yield self
        finally:
            self.clear()
            self.engine.close()

    def load(self, requests: int, *, random: bool = False) -> None:
        """Keep this many requests decoding from now on: source text, or random bytes."""
        with self._lock:
            self._wanted, self._random = requests, random
            missing = max(0, requests - len(self._live))
        for _ in range(missing):
            self._submit()

    def clear(self) -> None:
        """End all requests at once, and wait until they have left."""
        with self._lock:
            self._wanted, left, self._live = 0, self._live, set()
        for sequence in left:
            sequence.cancelled = True
        while self.engine.inside != (0, 0):
            time.sleep(LOOK_S)

    def settle(self, requests: int, text: int = 0) -> None:
        """Restart at a place in the texts, and wait until this many requests decode."""
        self.clear()
        texts = corpus.prompts(TEXTS, 0)
        self._prompts = itertools.cycle(texts[text % TEXTS :] + texts[: text % TEXTS])
        self.load(requests)
        while self.engine.inside[1] < requests:
            time.sleep(LOOK_S)

    def work(self, requests: int, tokens: int, text: int) -> EngineWindow:
        """Return the window of this many tokens from a place in the texts; all settings write the same."""
        self.settle(requests, text)
        return self._until(lambda done: done.tokens >= tokens)

    def window(self, seconds: float) -> EngineWindow:
        """Return the window of this many seconds from now."""
        end = time.perf_counter() + seconds
        return self._until(lambda done: time.perf_counter() >= end)

    def _until(self, enough: Callable[[EngineTotals], bool]) -> EngineWindow:
        before, busy, own = self.engine.totals, self._busy_s(), time.process_time()
        began = time.perf_counter()
        while not enough(done := self.engine.totals.since(before)):
            time.sleep(LOOK_S)
        spent = time.perf_counter() - began
        foreign_s = (self._busy_s() - busy) - (time.process_time() - own)
        share = max(0.0, foreign_s) / (spent * (os.cpu_count() or 1))
        return EngineWindow(done, spent, share)

    def _submit(self) -> None:
        def deliver(tokens: Sequence[int], ended: bool) -> None:
            if ended:
                self._ended(sequence)

        sequence = DecodingSequence(encode(next(self._prompts)), TOKENS, deliver, ignores_eos=True)
        with self._lock:
            sequence.temperature = RANDOM if self._random else 0.0
            self._live.add(sequence)
        self.engine.submit(sequence)

    def _ended(self, sequence: DecodingSequence) -> None:
        with self._lock:
            if sequence not in self._live:
                return
            self._live.remove(sequence)
            again = len(self._live) < self._wanted
        if again:
            self._submit()

    def _busy_s(self) -> float:
        fields = [int(x) for x in self._stat.read_text().split("\n", 1)[0].split()[1:9]]
        return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
