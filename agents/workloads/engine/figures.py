"""Decoding data of an engine: llama-server's timings of an answer, and counters of drafts."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from agents.load.exposition import parse
from tuner.core import MeasurementError

TIMINGS = re.compile(rb'"timings":\s*(\{[^{}]*\})')
"""In generated text the quotes would be escaped: only the answer's own field matches."""
LONGEST_TIMINGS = 4096

DRAFTS = "spec_decode_num_drafts"
ACCEPTED = "spec_decode_num_accepted_tokens"
BY_POSITION = "spec_decode_num_accepted_tokens_per_pos"
ENGINES = ("llamacpp", "vllm")
"""The prefixes of engines with these counters; vLLM's have labels of the model and of its engines."""


@dataclass(frozen=True, slots=True)
class Timings:
    """The timings of one answer: generated tokens, their duration, and drafted tokens.

    `generating_s` starts at the first token, which comes from the prompt's own pass. Field names of
    the server: `predicted_n`, `predicted_ms`, `draft_n`, `draft_n_accepted`; the last two are left
    out if nothing was drafted.
    """

    tokens: int
    generating_s: float
    drafted: int = 0
    accepted: int = 0

    @property
    def passes(self) -> int:
        """Passes of the target model after the prompt's. Each gave one token besides accepted drafts."""
        return max(0, self.tokens - 1 - self.accepted)


def timings_of(table: object) -> Timings | None:
    """Return an answer's timings, None if their form is unknown."""
    if not isinstance(table, Mapping):
        return None
    counts = [table.get(name, 0) for name in ("predicted_n", "draft_n", "draft_n_accepted")]
    milliseconds = table.get("predicted_ms")
    if not all(_is_count(count) for count in counts):
        return None
    if not isinstance(milliseconds, int | float) or not 0.0 <= milliseconds < math.inf:
        return None
    tokens, drafted, accepted = (int(count) for count in counts)
    if accepted > drafted:
        return None
    return Timings(tokens, float(milliseconds) / 1000.0, drafted, accepted)


def _is_count(value: Any) -> bool:  # noqa: ANN401  JSON
    """Return whether a JSON value is an integer of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class TimingsReader:
    """Extract the timings from an answer in pieces, streamed or whole, without changing it."""

    def __init__(self) -> None:
        self._tail = b""
        self._timings = b""

    def see(self, chunk: bytes) -> None:
        """Scan the next piece."""
        text = self._tail + chunk
        end = 0
        for match in TIMINGS.finditer(text):
            self._timings, end = match.group(1), match.end()
        self._tail = text[max(end, len(text) - LONGEST_TIMINGS) :]

    @property
    def timings(self) -> Timings | None:
        """The last timings seen, None before any."""
        try:
            return timings_of(json.loads(self._timings)) if self._timings else None
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class SpeculationCounters:
    """A server's counters since its start, over finished answers.

    `steps` are verifications of a draft; `by_position[i]` counts those that accepted more than i
    tokens. All are zero if the build does not report them.
    """

    steps: int = 0
    accepted: int = 0
    by_position: tuple[int, ...] = ()

    def plus(self, other: SpeculationCounters) -> SpeculationCounters:
        """Return the sum of both."""
        return SpeculationCounters(
            self.steps + other.steps,
            self.accepted + other.accepted,
            tuple(a + b for a, b in zip_longest(self.by_position, other.by_position, fillvalue=0)),
        )


def counters_in(text: str, where: str) -> SpeculationCounters:
    """Return the counters in a server's `/metrics`. Raises MeasurementError: the text is not valid."""
    names = [f"{engine}:{name}" for engine in ENGINES for name in (DRAFTS, ACCEPTED, BY_POSITION)]
    singles: defaultdict[str, float] = defaultdict(float)
    positions: defaultdict[int, float] = defaultdict(float)
    for sample in parse(text, names, where):
        if sample.labels.get("position", "").isdigit():
            positions[int(sample.labels["position"])] += sample.value
        else:
            singles[sample.name.partition(":")[2].removesuffix("_total")] += sample.value
    counts = [*singles.values(), *positions.values()]
    if not all(math.isfinite(c) and c >= 0.0 for c in counts) or set(positions) != {
        *range(len(positions))
    }:
        raise MeasurementError(f"{where} reports impossible counters of speculation")
    return SpeculationCounters(
        round(singles.get(DRAFTS, 0.0)),
        round(singles.get(ACCEPTED, 0.0)),
        tuple(round(positions[i]) for i in range(len(positions))),
    )


@dataclass(slots=True)
class DecodingTotals:
    """Sums over finished answers since a start; `items` are tokens."""

    requests: int = 0
    items: int = 0
    generating_s: float = 0.0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    untold: int = field(default=0)
    """Responses without timings."""

    def add(self, timings: Timings | None) -> None:
        """Add one answer."""
        self.requests += 1
        if timings is None:
            self.untold += 1
            return
        self.items += timings.tokens
        self.generating_s += timings.generating_s
        self.passes += timings.passes
        self.drafted += timings.drafted
        self.accepted += timings.accepted
