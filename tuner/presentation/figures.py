"""Numbers as text for people: in a fitting unit, with only the significant digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.core import UNDECLARED, Estimate, Quantities, Setting, quantity_of

# The unit of a quantity → the units in which it is shown, each with its size in the quantity's unit.
_LADDERS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "J": (("µJ", 1e-6), ("mJ", 1e-3), ("J", 1.0), ("kJ", 1e3), ("MJ", 1e6)),
    "W": (("mW", 1e-3), ("W", 1.0), ("kW", 1e3)),
    "ms": (("µs", 1e-3), ("ms", 1.0), ("s", 1e3)),
    "1/s": (("/s", 1.0),),
    "s": (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)),
}
THE_BASELINE = "the baseline"

EXACT = 1e-9
"""A standard error below this share of the number is a rounding error and is not shown."""

_DURATIONS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


@dataclass(frozen=True, slots=True)
class ShownUnit:
    """A unit in which a quantity is shown, and its size in the quantity's unit."""

    unit: str
    size: float


def figure(metric: str, mean: float, stderr: float = 0.0, declared: Quantities = UNDECLARED) -> str:
    """Return a metric's value with its unit: `12.34 ± 0.12 mJ`; without ± if the standard error is 0."""
    return amount(quantity_of(metric, declared).unit, mean, stderr)


def amount(of: str, mean: float, stderr: float = 0.0) -> str:
    """Return a number in the unit that fits its size; units without larger or smaller ones stay."""
    unit, size = _unit(of, mean)
    value, doubt = mean / size, stderr / size if stderr > EXACT * abs(mean) else 0.0
    digits = _decimals(value, doubt)
    text = f"{value:,.{digits}f}"
    if doubt > 0.0:
        text += f" ± {doubt:,.{digits}f}"
    return text if unit in ("", "1") else f"{text} {unit}"


def scale_of(metric: str, mean: float, declared: Quantities = UNDECLARED) -> ShownUnit:
    """Return the unit for a whole chart or column of a metric whose values are about `mean`."""
    return ShownUnit(*_unit(quantity_of(metric, declared).unit, mean))


def scaled(estimate: Estimate | None, scale: ShownUnit) -> str:
    """Return an estimate as a number in the unit of its column; a dash for None."""
    if estimate is None:
        return "–"
    return amount("", estimate.mean / scale.size, estimate.stderr / scale.size)


def shown(metric: str, estimates: Mapping[str, Estimate], declared: Quantities = UNDECLARED) -> str:
    """Return one metric of a mapping with its standard error; a dash if it was not measured."""
    estimate = estimates.get(metric)
    return "–" if estimate is None else figure(metric, estimate.mean, estimate.stderr, declared)


def percent(share: float, stderr: float = 0.0) -> str:
    """Return a share as a percentage: `23.1 ± 0.8 %`."""
    doubt = f" ± {100 * stderr:.1f}" if stderr > EXACT else ""
    return f"{round(100 * share, 1) + 0.0:.1f}{doubt} %"  # no -0.0


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least one: `3.4 min`, `2.1 h`."""
    unit, size = next(
        ((unit, size) for unit, size in _DURATIONS if seconds >= size), _DURATIONS[-1]
    )
    return f"{seconds / size:.3g} {unit}"


def change(setting: Setting, baseline: Setting) -> str:
    """Return the knobs that differ from the baseline, in the baseline's order: `gpu.clock_mhz=624`."""
    names = [n for n in dict.fromkeys((*baseline, *setting)) if n in setting]
    moved = [f"{n}={setting[n]}" for n in names if baseline.get(n) != setting[n]]
    return " ".join(moved) or THE_BASELINE


def how_many(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: `1 study`, `3 trials`."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def joined(items: Iterable[str], nothing: str = "none") -> str:
    """Return the items separated by commas, or the text `nothing` without items."""
    return ", ".join(items) or nothing


def _unit(of: str, mean: float) -> tuple[str, float]:
    """Return the unit that fits a number's size, and the size of the unit."""
    ladder = _LADDERS.get(of, ((of, 1.0),))
    own = next((unit, size) for unit, size in ladder if size == 1.0)
    if mean == 0.0:
        return own
    fitting = [(unit, size) for unit, size in ladder if abs(mean) >= size]
    return fitting[-1] if fitting else ladder[0]


def _decimals(value: float, doubt: float) -> int:
    """Return the number of decimals that shows two digits of the standard error, else four of the value."""
    reference, digits = (doubt, 2) if doubt > 0.0 else (abs(value), 4)
    if reference == 0.0:
        return 0
    return min(6, max(0, digits - 1 - math.floor(math.log10(reference))))
