"""Check that a window's figures are plausible: rules without hardware, for the agent and the tuner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.core.facts import Fact, RuleFinding, RuleResult, contradiction, unjudged
from tuner.core.measurements import Estimate, Measurement
from tuner.core.quantities import ENERGY, POWER, UNDECLARED, Quantities, called, quantity_of

__all__ = ["HeldRange", "ReportedWindow", "implausible", "not_compared"]

RANGES: Mapping[str, tuple[float, float]] = {
    "J": (1e-12, 1e12),
    "W": (1e-6, 1e9),
    "ms": (0.0, 1e11),
    "s": (0.0, 1e8),
    "1/s": (0.0, 1e12),
}
"""The least and the greatest plausible value by unit, our choice: an energy from 1 pJ an item to 1 TJ, a
power from 1 µW to 1 GW, a time up to three years. An energy or power of 0 is from a meter that stands
still; a part of one, such as the energy of waiting, may be 0."""
SMALLEST, LARGEST = 1e-30, 1e30
"""The least and the greatest magnitude of a number of any other unit. Every estimate and standard error is
0 or at least `SMALLEST`."""
LONGEST_S = 30.0 * 86400.0
"""The greatest length of a window, and of its overhead, in seconds: our choice."""
CONSISTENT = 3.0
"""The greatest factor between energy × items and power × seconds of one meter: our choice. Correct windows
differ by the batches at their ends."""
TIMES_SHOWN = 3.0
"""The greatest factor by which a held window's rate and power exceed the range of the trials: our
choice."""


@dataclass(frozen=True, slots=True)
class ReportedWindow(Fact):
    """A window as it is reported, and the quantities that its study declares for its metrics."""

    window: Measurement
    declared: Quantities


def implausible(window: Measurement, declared: Quantities = UNDECLARED) -> str:
    """Return why a window's numbers cannot be true, in words; empty if no rule contradicts them."""
    one = ReportedWindow(window, declared)
    findings = (rule(one) for rule in (lengths, ranges, energy_beside_power))
    return next((f.why for f in findings if f.result is RuleResult.CONTRADICTED), "")


def not_compared(window: Measurement, declared: Quantities = UNDECLARED) -> str:
    """Return why a window's energy cannot be compared with its power; empty if it can, or lacks one."""
    finding = energy_beside_power(ReportedWindow(window, declared))
    return finding.why if finding.result is RuleResult.UNKNOWN else ""


def lengths(one: ReportedWindow) -> RuleFinding:
    """Can a window be so long?

    Witnesses: its seconds; the calendar
    Tolerance: {LONGEST_S:.0f} s
    Source: ours
    Result: no measurement; at the tuner contaminated
    """
    window = one.window
    for name, length_s in (("seconds", window.seconds), ("overhead_s", window.overhead_s)):
        if length_s > LONGEST_S:
            return contradiction(f"{name} is {length_s:.4g} s, beyond {LONGEST_S:.4g} s")
    return contradiction(
        f"the foreign share is {window.foreign:.4g}, beyond 1" if window.foreign > 1.0 else ""
    )


def ranges(one: ReportedWindow) -> RuleFinding:
    """Can a quantity of this unit be so large or small?

    Witnesses: each estimate; the range of its unit
    Tolerance: least and most by unit: {RANGES}; else {LARGEST:g}
    Source: ours
    Result: no measurement; at the tuner contaminated
    """
    reasons = (_out_of_range(n, e, one.declared) for n, e in one.window.estimates.items())
    return contradiction(next(filter(None, reasons), ""))


def _out_of_range(name: str, estimate: Estimate, declared: Quantities) -> str:
    """Return why an estimate is outside the range of its unit; empty if it is inside."""
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


def energy_beside_power(one: ReportedWindow) -> RuleFinding:
    """Do energy and power of a window fit each other?

    Witnesses: energy × items; power × seconds
    Tolerance: a factor of {CONSISTENT:g}
    Source: ours
    Result: no measurement; at the tuner contaminated
    """
    window = one.window
    names = called(ENERGY, one.declared), called(POWER, one.declared)
    energy, power = (window.estimates.get(name) for name in names)
    if energy is None or power is None:
        return RuleFinding()
    for word in ("scope", "origin"):
        if (mine := getattr(energy, word)) != (other := getattr(power, word)):
            return unjudged(f"their {word} differs: {mine} and {other}")
    if not (items := window.load.completed):
        return unjudged("the windows do not report their items")
    by_item, by_time = energy.mean * items, power.mean * window.seconds
    apart = not by_time / CONSISTENT <= by_item <= CONSISTENT * by_time
    return contradiction(
        f"{names[0]} × {items} items is {by_item:.4g} J, {names[1]} × {window.seconds:.4g} s is "
        f"{by_time:.4g} J: more than {CONSISTENT:g} times apart"
        if apart
        else ""
    )


@dataclass(frozen=True, slots=True)
class HeldRange:
    """The range of a study's trials, against which its held windows are checked.

    `most_rate_per_s` is the highest rate in items/s, `power_w` the lowest and the highest power in W.
    """

    most_rate_per_s: float
    power_w: tuple[float, float]

    @classmethod
    def of(
        cls, windows: Iterable[Measurement], declared: Quantities = UNDECLARED
    ) -> HeldRange | None:
        """Return the range of some windows; None if no plausible window has both items and energy."""
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
        """Return in words how a held window is outside this range; empty if it is inside."""
        return within_trials(HeldClaim(self, completed, seconds, energy_j)).why


@dataclass(frozen=True, slots=True)
class HeldClaim(Fact):
    """A held window's items, seconds and joules an item, and the range of its study's trials."""

    shown: HeldRange
    completed: int
    seconds: float
    energy_j: float


def within_trials(one: HeldClaim) -> RuleFinding:
    """Does a held window lie near its study's trials?

    Witnesses: its rate and power; those of the trials
    Tolerance: a factor of {TIMES_SHOWN:g}
    Source: ours
    Result: at the tuner: kept, and not billed
    """
    rate, most, limit = one.completed / one.seconds, one.shown.most_rate_per_s, TIMES_SHOWN
    drawn, (least_w, most_w), why = rate * one.energy_j, one.shown.power_w, ""
    if rate > limit * most:
        why = f"{rate:.4g} items/s, its trials measured at most {most:.4g}"
    elif one.completed and not least_w / limit <= drawn <= limit * most_w:
        why = f"{drawn:.4g} W, its trials measured {least_w:.4g} to {most_w:.4g} W"
    return contradiction(why and f"{why} (limit {limit:g} times that)")
