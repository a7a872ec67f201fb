"""The servers, the requests of each, and its limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from jouletune_bench.llm import (
    SERVERS,
    LlmServer,
    Request,
    ServedRequest,
    ServesRequests,
    board_of,
)
from tuner.core import InvalidInput

HALF_S = 1800.0
"""The second of a trace that separates tuning from judging."""
WARM_S = 60.0
"""The time before the judged half that is played first, and not counted."""
WINDOW = 299
"""The fewest requests by which a p99 has an upper bound (`tuner.core.estimates`)."""
SHARES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CROWDED = 2.5
"""A server's share of a trace is small enough if its p99 to the first token, at its defaults, is below this
multiple of that at one request of 64, which the longest prompts determine. Our choice.
"""

Opener = Callable[[Sequence[Request], int], ServesRequests]
"""Creates a server for these requests, with a seed for its noise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on the p99 in every window of 299 requests, in seconds."""

    ttft_s: float
    tpot_s: float

    def worst(self, ttft_s: float, tpot_s: float) -> float:
        """Return the larger of two p99s relative to their limits: above 1 a limit is broken."""
        return max(ttft_s / self.ttft_s, tpot_s / self.tpot_s)


def builtin() -> list[str]:
    """Return every simulated server with every model."""
    return [f"simulated:{name}/{model}" for name, models in SERVERS.items() for model in models]


def opener(spec: str) -> Opener:
    """Return the function that opens `simulated:SERVER[/MODEL]` or `MODULE:NAME`, from requests and a seed.

    Raises: InvalidInput: there is no such server, or its module cannot be imported.
    """
    kind, _, rest = spec.partition(":")
    if kind == "simulated":
        board = board_of(rest)
        return lambda requests, seed: LlmServer(board, iter(requests), seed=seed)
    try:
        server: Any = getattr(import_module(kind), rest)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(
            f"there is no server {spec!r}: {error}",
            hint="write module:NAME, a function of (requests, seed) on the path of Python",
        ) from error
    return server  # type: ignore[no-any-return]


def first_half(trace: Sequence[Request]) -> list[Request]:
    """Return a trace's requests for tuning."""
    return [r for r in trace if r.arrival_s < HALF_S]


def second_half(trace: Sequence[Request]) -> list[Request]:
    """Return a trace's requests for judging, with the minute before them, in which time 0 lies."""
    began = HALF_S - WARM_S
    return [replace(r, arrival_s=r.arrival_s - began) for r in trace if r.arrival_s >= began]


def shared(trace: Sequence[Request], share: int, seed: int) -> list[Request]:
    """Return the requests of one of `share` servers: each `share`-th one, the first by seed."""
    return list(trace[seed % share :: share])


def in_turns(
    trace: Sequence[Request], share: int, seed: int, turns: int, lasts_s: float
) -> list[Request]:
    """Return the requests of several of `share` servers in turn: a trace of `lasts_s` each."""
    return [
        replace(r, arrival_s=r.arrival_s + turn * lasts_s)
        for turn in range(turns)
        for r in shared(trace, share, seed * turns + turn)
        if r.arrival_s < lasts_s
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered))))]


def windows(served: Sequence[ServedRequest]) -> list[tuple[float, float, float, float]]:
    """Return start, end and the p99 of TTFT and TPOT of every 299 requests, by arrival."""
    ordered = sorted(served, key=lambda s: s.arrival_s)
    cut = [ordered[i : i + WINDOW] for i in range(0, len(ordered) - WINDOW + 1, WINDOW)]
    if cut:
        cut[-1] += ordered[len(cut) * WINDOW :]
    return [
        (
            each[0].arrival_s,
            each[-1].arrival_s,
            quantile([s.ttft_s for s in each], 0.99),
            quantile([s.tpot_s for s in each], 0.99),
        )
        for each in cut
    ]
