"""Whether what a window claims can be: ranges by quantity, and its energy beside its power."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.core.measurements import Estimate, Measurement
from tuner.core.quantities import ENERGY, POWER, UNDECLARED, Quantities, called, quantity_of

__all__ = ["HeldRange", "implausible", "not_compared"]

RANGES: Mapping[str, tuple[float, float]] = {
    "J": (1e-12, 1e12),
    "W": (1e-6, 1e9),
    "ms": (0.0, 1e11),
    "s": (0.0, 1e8),
    "1/s": (0.0, 1e12),
}
"""The least and the most that a quantity of a unit can be, our choice: from a picojoule an item to a year
of a power plant's day, from a microwatt to a gigawatt, up to three years. An energy or power of 0 is a
meter that stands still; a part of them, such as what waiting took, may be 0."""
SMALLEST, LARGEST = 1e-30, 1e30
"""No number of any other unit, and no standard error, is nearer to 0 (but 0 itself) or further from it."""
LONGEST_S = 30.0 * 86400.0
"""No window, and no time beside it, is longer than this many seconds: our choice."""
CONSISTENT = 3.0
"""Energy and power of one meter differ by at most this factor: our choice. Honest windows differ by the
ends of their batches."""


def implausible(window: Measurement, declared: Quantities = UNDECLARED) -> str:
    """Return why a window's numbers cannot be true, in words; empty where nothing speaks against them."""
    for name, length_s in (("seconds", window.seconds), ("overhead_s", window.overhead_s)):
        if length_s > LONGEST_S:
            return f"{name} is {length_s:.4g} s, beyond {LONGEST_S:.4g} s"
    if window.foreign > 1.0:
        return f"the foreign share is {window.foreign:.4g}, beyond 1"
    reasons = (_out_of_range(name, e, declared) for name, e in window.estimates.items())
    return next(filter(None, reasons), "") or _contradicts_power(window, declared)


def _out_of_range(name: str, estimate: Estimate, declared: Quantities) -> str:
    quantity = quantity_of(name, declared)
    unit = "" if quantity.unit in ("", "1") else f" {quantity.unit}"
    mean, doubt = estimate.mean, estimate.stderr
    least, most = RANGES.get(quantity.unit, (-LARGEST, LARGEST))
    if quantity.signed and least >= 0.0:
        least = -most
    unmoved = quantity.of_energy and mean <= 0.0
    if unmoved or (mean < least and mean != 0.0):
        return f"{name} is {mean:.4g}{unit}, below {max(least, 0.0):.4g}{unit}"
    if mean > most or doubt > most:
        return f"{name} is {mean:.4g} ± {doubt:.4g}{unit}, beyond {most:.4g}{unit}"
    if any(0.0 < abs(x) < SMALLEST for x in (mean, doubt)):
        return f"{name} is {mean:.4g} ± {doubt:.4g}{unit}: closer to 0 than any meter can measure"
    return ""


def not_compared(window: Measurement, declared: Quantities = UNDECLARED) -> str:
    """Return why a window's energy cannot be compared with its power; empty where it can or lacks one."""
    energy = window.estimates.get(called(ENERGY, declared))
    power = window.estimates.get(called(POWER, declared))
    if energy is None or power is None:
        return ""
    for word, mine, other in (
        ("scope", energy.scope, power.scope),
        ("origin", energy.origin, power.origin),
    ):
        if mine != other:
            return f"their {word} differs: {mine} and {other}"
    return "" if window.load.completed else "the windows do not report their items"


def _contradicts_power(window: Measurement, declared: Quantities) -> str:
    names = called(ENERGY, declared), called(POWER, declared)
    energy, power = (window.estimates.get(name) for name in names)
    if energy is None or power is None or not_compared(window, declared):
        return ""
    items = window.load.completed
    by_item, by_time = energy.mean * items, power.mean * window.seconds
    if abs(math.log(by_item / by_time)) <= math.log(CONSISTENT):
        return ""
    return (
        f"{names[0]} × {items} items is {by_item:.4g} J, {names[1]} × {window.seconds:.4g} s is "
        f"{by_time:.4g} J: more than {CONSISTENT:g} times apart"
    )


TIMES_SHOWN = 3.0
"""A held window's rate and power lie within this factor of what the trials have shown: our choice."""


@dataclass(frozen=True, slots=True)
class HeldRange:
    """What a study's trials have shown, by which its held windows are believed.

    `most_rate_per_s` is the most items a second, `power_w` the least and most joules a second.
    """

    most_rate_per_s: float
    power_w: tuple[float, float]

    @classmethod
    def of(
        cls, windows: Iterable[Measurement], declared: Quantities = UNDECLARED
    ) -> HeldRange | None:
        """Return the range of some windows; None where none of them tells its items and energy."""
        energy = called(ENERGY, declared)
        shown = [
            (w.load.completed / w.seconds, w.estimates[energy].mean)
            for w in windows
            if w.load.completed and energy in w.estimates and not implausible(w, declared)
        ]
        if not shown:
            return None
        drawn = [rate * energy_j for rate, energy_j in shown]
        return cls(max(rate for rate, _ in shown), (min(drawn), max(drawn)))

    def beyond(self, completed: int, seconds: float, energy_j: float) -> str:
        """Return in words what of a held window is beyond it; empty where nothing is."""
        rate, most = completed / seconds, self.most_rate_per_s
        if rate > TIMES_SHOWN * most:
            return f"{rate:.4g} items/s, its trials measured at most {most:.4g} ({_LIMIT})"
        least_w, most_w = self.power_w
        if completed and not least_w / TIMES_SHOWN <= rate * energy_j <= TIMES_SHOWN * most_w:
            shown = f"{least_w:.4g} to {most_w:.4g} W"
            return f"{rate * energy_j:.4g} W, its trials measured {shown} ({_LIMIT})"
        return ""


_LIMIT = f"limit {TIMES_SHOWN:g} times that"
