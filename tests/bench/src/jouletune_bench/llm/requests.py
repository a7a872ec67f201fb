"""Requests to a language model's server: from a file of arrivals, or a similar Poisson stream."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tuner.core import InvalidInput

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Request:
    """One request: its arrival in seconds from the start, and its numbers of tokens in and out."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One answered request; times in seconds.

    `ttft_s` is the time to the first token, `tpot_s` the mean time per further token (0 if there
    was none), `latency_s` the time to the last token.
    """

    arrival_s: float
    ttft_s: float
    tpot_s: float
    latency_s: float


TYPICAL = (1155, 211)
"""Mean prompt and output tokens of Azure's conversations (AzureLLMInferenceTrace_conv, 2023-11-16)."""
SPREAD = 0.9
"""Standard deviation of the logarithm of a generated request's sizes.

Our own; that file's is 1.0.
"""


def read_trace(path: Path) -> tuple[Request, ...]:
    """Read a CSV file with the columns `arrival_s`, `prompt_tokens`, `output_tokens`.

    Raises:
        InvalidInput: the file is missing or is not such a table, or its arrivals do not ascend.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            requests = tuple(_row(row) for row in csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(
            f"{path} is no trace of requests: {error}",
            hint=f"give a CSV file with the columns {', '.join(COLUMNS)}",
        ) from error
    if not requests or any(a.arrival_s > b.arrival_s for a, b in itertools.pairwise(requests)):
        raise InvalidInput(
            f"{path} has no requests, or they are not in the order of their arrival",
            hint="sort them by arrival_s",
        )
    return requests


def _row(row: dict[str, str]) -> Request:
    arrival, prompt, output = (float(row[name]) for name in COLUMNS)
    if not (math.isfinite(arrival) and arrival >= 0.0 and prompt >= 1.0 and output >= 1.0):
        raise ValueError(f"a request cannot be {row}")
    return Request(arrival, int(prompt), int(output))


def repeated(requests: Sequence[Request], times: int | None = None) -> Iterator[Request]:
    """Repeat a trace; each repetition starts one mean gap of the trace after the last arrival."""
    span = requests[-1].arrival_s + requests[-1].arrival_s / max(1, len(requests) - 1)
    turn = 0
    while times is None or turn < times:
        shift = turn * (span or 1.0)
        for each in requests:
            yield Request(each.arrival_s + shift, each.prompt_tokens, each.output_tokens)
        turn += 1


def poisson(rate_per_s: float, seed: int) -> Iterator[Request]:
    """Yield requests of typical sizes with Poisson arrivals at a constant rate."""
    rng, now = Random(f"{seed}/poisson"), 0.0
    while True:
        now += rng.expovariate(rate_per_s)
        yield typical(now, rng)


def typical(arrival_s: float, rng: Random) -> Request:
    """Return a request with lognormal sizes around the means of Azure's conversations."""
    prompt, output = (
        max(1, round(mean * math.exp(rng.gauss(-SPREAD * SPREAD / 2.0, SPREAD))))
        for mean in TYPICAL
    )
    return Request(arrival_s, prompt, output)
