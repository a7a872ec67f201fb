"""How much risk a search takes: three dials for each level of safety. `tuner.guard` says what is safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core import Safety


@dataclass(frozen=True, slots=True)
class Caution:
    """What things cost.

    `violation` is what a window that breaks a limit costs, and `wrong` what holding a setting that
    breaks one costs, both in units of what the same setting would win were it to keep the limits: at
    which odds it is worth it follows from that. `trial` is what a window must promise to save, as a
    share of what the baseline costs.
    """

    violation: float
    wrong: float = 4.0
    trial: float = 0.002


_BALANCED = Caution(violation=2.5)

CAUTION: Mapping[Safety, Caution] = {
    Safety.STRICT: Caution(violation=6.0),
    Safety.BALANCED: _BALANCED,
    Safety.ADVISE: _BALANCED,
    Safety.OFF: Caution(violation=0.1),
}


def even_chance(cost: float) -> float:
    """Return the chance to win one at which it makes up for the chance to lose so much."""
    return cost / (1.0 + cost)
