"""The load that a plan goes by: its bands, and for how long each was seen."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["LOAD_REACH", "LOAD_STEP", "LoadHistory", "band_edges", "confirms_at", "load_band"]

LOAD_STEP = math.sqrt(1.25)
"""From one band of a load to the next: loads of two adjoining bands differ by at most a fifth, as those of
windows that are compared do (`LOAD_BAND`)."""

LOAD_REACH = math.sqrt(LOAD_STEP)
"""A setting that is confirmed at a load may be held at loads up to this many times as high: half a band."""

LEAST_LOAD = 1e-3
"""Loads below this are one band."""


def load_band(load: float) -> int:
    """Return the band of a load; bands are numbered from 0 for a load of 1."""
    return math.floor(math.log(max(load, LEAST_LOAD)) / math.log(LOAD_STEP) + 1e-9)


def confirms_at(measured: float, load: float) -> bool:
    """Return whether a window at one load may confirm a row of a plan at another.

    One at a lower load, by more than a row reaches, shows too little of it; one at a higher load shows
    more, as far as loads are compared.
    """
    return load / LOAD_REACH <= measured <= load * LOAD_STEP**2


def band_edges(band: int) -> tuple[float, float]:
    """Return where a band begins and ends, in the load's unit."""
    return LOAD_STEP**band, LOAD_STEP ** (band + 1)


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """For how many seconds a load was in each band, as far as windows and holds show."""

    seconds: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float]]) -> LoadHistory:
        """Return the history of pairs of a load and the seconds that it lasted."""
        seconds: Counter[int] = Counter()
        for load, lasted_s in spans:
            if math.isfinite(load) and lasted_s > 0.0:
                seconds[load_band(load)] += lasted_s  # type: ignore[assignment]
        return cls(dict(seconds))
