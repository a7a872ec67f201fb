"""Simulated servers of language models: `simulated:h100-llm[/MODEL][@TRACE.csv|@RATE]`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from agents.target.side import Side
from jouletune_bench.llm.boards import SERVERS, LlmBoard
from jouletune_bench.llm.requests import (
    Request,
    ServedRequest,
    poisson,
    read_trace,
    repeated,
)
from jouletune_bench.llm.server import CLOCK, LlmServer, ServerCounters
from jouletune_bench.llm.side import ServesRequests, attach
from tuner.core import InvalidInput

__all__ = [
    "CLOCK",
    "SERVERS",
    "LlmBoard",
    "LlmServer",
    "Request",
    "ServedRequest",
    "ServerCounters",
    "ServesRequests",
    "attach",
    "board_of",
    "open_llm",
    "read_trace",
]

DEFAULT_RATE_PER_S = 3.0


def open_llm(rest: str, *, seed: int, state_dir: Path | None) -> Side:
    """Open `SERVER[/MODEL][@TRACE.csv]`, or `@RATE` for a Poisson stream of RATE requests/s.

    A trace repeats without end. By default there are 3 requests/s.

    Raises:
        InvalidInput: unknown server or model, no such trace, or the rate is not a number.
        ConfigError: the state file belongs to another server.
    """
    spec, _, load = rest.partition("@")
    board = board_of(spec)
    name = f"simulated-{spec.replace('/', '-')}"
    state_file = state_dir / f"{name}.json" if state_dir else None
    server = LlmServer(board, _arrivals(load, seed), seed=seed, state_file=state_file)
    return attach(server, name, f"{board.board}, {board.model}")


def board_of(spec: str) -> LlmBoard:
    """Return the board of `SERVER[/MODEL]`. Raises InvalidInput if it is unknown."""
    server, _, model = spec.partition("/")
    models = SERVERS.get(server)
    if models is None:
        raise InvalidInput(
            f"there is no simulated server {server!r}", hint=f"choose one of {', '.join(SERVERS)}"
        )
    model = model or next(iter(models))
    if model not in models:
        raise InvalidInput(
            f"the simulated {server} does not serve {model!r}",
            hint=f"choose one of {', '.join(models)}",
        )
    return models[model]


def _arrivals(load: str, seed: int) -> Iterator[Request]:
    if not load:
        return poisson(DEFAULT_RATE_PER_S, seed)
    try:
        rate = float(load)
    except ValueError:
        return repeated(read_trace(Path(load)))
    if not (math.isfinite(rate) and rate > 0.0):
        raise InvalidInput(
            f"a server cannot get {load} requests a second",
            hint="give a number above 0, or a trace: @FILE.csv",
        )
    return poisson(rate, seed)
