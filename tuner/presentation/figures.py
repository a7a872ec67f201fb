"""Numbers as text for people: in a fitting unit, with only the significant digits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.core import UNDECLARED, Estimate, Quantities, Setting, quantity_of
from tuner.verify import amount as amount
from tuner.verify import duration as duration
from tuner.verify import fitting
from tuner.verify import percent as percent

THE_BASELINE = "the baseline"


@dataclass(frozen=True, slots=True)
class ShownUnit:
    """A unit in which a quantity is shown, and its size in the quantity's unit."""

    unit: str
    size: float


def figure(metric: str, mean: float, stderr: float = 0.0, declared: Quantities = UNDECLARED) -> str:
    """Return a metric's value with its unit: `12.34 ± 0.12 mJ`; without ± if the standard error is 0."""
    return amount(quantity_of(metric, declared).unit, mean, stderr)


def scale_of(metric: str, mean: float, declared: Quantities = UNDECLARED) -> ShownUnit:
    """Return the unit for a whole chart or column of a metric whose values are about `mean`."""
    return ShownUnit(*fitting(quantity_of(metric, declared).unit, mean))


def scaled(estimate: Estimate | None, scale: ShownUnit) -> str:
    """Return an estimate as a number in the unit of its column; a dash for None."""
    if estimate is None:
        return "–"
    return amount("", estimate.mean / scale.size, estimate.stderr / scale.size)


def shown(metric: str, estimates: Mapping[str, Estimate], declared: Quantities = UNDECLARED) -> str:
    """Return one metric of a mapping with its standard error; a dash if it was not measured."""
    estimate = estimates.get(metric)
    return "–" if estimate is None else figure(metric, estimate.mean, estimate.stderr, declared)


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
