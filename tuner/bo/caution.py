"""The risk that a search takes: three parameters for each level of safety. `tuner.guard` defines safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.core import Safety

LATE = 25.0
"""Before a search ends, a violation costs only the square of `Caution.violation` over this,
because the remaining settings would never be measured otherwise. A stricter level of safety
lowers this price less."""


@dataclass(frozen=True, slots=True)
class Caution:
    """The prices of a violation, of a wrong hold and of a trial.

    `violation` is the price of a window that breaks a limit, and `wrong` that of holding a setting
    that breaks one. Both are in units of the saving that the same setting would bring within the
    limits; the least acceptable chance follows from them. `trial` is the least saving that a window
    must promise, as a share of the baseline's cost.
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
    """Return the chance of winning 1 at which the expected gain equals the expected loss of `cost`."""
    return cost / (1.0 + cost)


def last_chance(caution: Caution) -> float:
    """Return the least chance to keep the limits for trials before a search ends."""
    return even_chance(caution.violation**2 / LATE)
