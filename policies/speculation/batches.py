"""Choose the numbers of requests to profile, as the load and the number of trials allow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from policies.speculation.grid import Choice
from tuner.core import Context, Past, Setting, Trial, TrialState, windows

DECODING = "decoding_requests"
"""The load signal of the plan: the sequences that decode together."""
BATCHES = (1, 2, 4, 8, 16, 32)
"""The batches that are always profiled, if the load allows them."""
FURTHER = (64, 128, 256)
"""Further batches, profiled while drafting still pays at the highest batch before."""
REACHED = 0.8
"""If fewer than this share of the requested number of requests decode together, the load does not reach
that number."""
RETRIES = 2
"""The most attempts of a cell without a result."""


def batches_of(past: Past, settings: Mapping[Choice, Setting]) -> tuple[int, ...]:
    """Return the batches to profile, from one request to the most, as the number of trials allows."""
    if DECODING not in past.study.askable:
        return ()
    ceiling = too_many(past.trials)
    if past.left <= 0 and (measured := _measured(past.trials)):
        return tuple(batch for batch in measured if batch < ceiling)
    reachable = [b for b in BATCHES if b < ceiling]
    plain = any(not choice.length for choice in settings)
    most = max(1, (past.study.terms.trials - 1) // (2 if plain else 1))
    if most >= len(reachable):
        return tuple(reachable)
    steps = max(1, most - 1)
    places = {round(i * (len(reachable) - 1) / steps) for i in range(most)}
    return tuple(reachable[i] for i in sorted(places))


def _measured(trials: Sequence[Trial]) -> list[int]:
    """Return the numbers of requests with a window."""
    batches = {t.context[DECODING] for t in trials if t.state.evidence and DECODING in t.context}
    return sorted(int(batch) for batch in batches if batch.is_integer())


def too_many(trials: Sequence[Trial]) -> float:
    """Return the least requested number of requests that did not decode together, or failed.

    Fewer than requested decode together between two answers, too: that is no ceiling where another
    window had as many.
    """
    tried = [t for t in trials if DECODING in t.context]
    pairs = [(t.context[DECODING], t.shown[DECODING].mean) for t in tried if DECODING in t.shown]
    most = max((together for _, together in pairs), default=0.0)
    missed = [
        requested
        for requested, together in pairs
        if together < REACHED * requested and most < requested
    ]
    short = [min(*missed, most / REACHED)] if missed else []
    failed = [t.context[DECODING] for t in tried if t.state is TrialState.FAILED]
    lost = [b for b in failed if failed.count(b) >= RETRIES and not _evidence(tried, b)]
    return min([*short, *lost], default=math.inf)


def _evidence(trials: Sequence[Trial], batch: float) -> bool:
    """Return whether a usable trial was requested at this number of requests."""
    return any(t.state.evidence and t.context[DECODING] == batch for t in trials)


def given_up(trials: Sequence[Trial], setting: Setting, context: Context) -> bool:
    """Return whether a setting failed, or was tried too often; an empty context means any load."""
    own = windows(trials, setting, requested=context or None)
    return any(t.state is TrialState.FAILED for t in own) or len(own) >= RETRIES
