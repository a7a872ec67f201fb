"""Rules that compare a window's figures with each other and with a second witness: else no evidence.

An agent applies all rules to the figures of each window (`agents.target`). The tuner repeats those that
need no hardware (`implausible`): it does not trust an agent, which may be compromised. Each rule's
docstring is its row in docs/measurement.md, with the tolerances below inserted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tuner.compat import StrEnum
from tuner.core.errors import MeasurementError
from tuner.core.estimates import Estimate
from tuner.core.measurements import (
    CounterAndPower,
    CounterStep,
    Fact,
    LastObject,
    Measurement,
    OwnRequests,
    PrintedNumber,
    Scrapes,
    WorkloadPlace,
    ZoneReads,
)
from tuner.core.quantities import (
    ENERGY,
    LARGEST,
    POWER,
    UNDECLARED,
    Quantities,
    called,
    quantity_of,
)

_AGAIN = "measure again; if it repeats, run `jouletune doctor`"
_RANGES: Mapping[str, tuple[float, float]] = {
    "J": (1e-12, 1e12),
    "W": (1e-6, 1e9),
    "ms": (0.0, 1e11),
    "s": (0.0, 1e8),
    "1/s": (0.0, 1e12),
}
"""The least and the greatest plausible value by unit, our choice: an energy from 1 pJ an item to 1 TJ, a
power from 1 µW to 1 GW, a time up to three years. An energy or power of 0 is from a meter that stands
still; a part of one, such as the energy of waiting, may be 0."""
_SMALLEST = 1e-30
"""The least magnitude of an estimate and of a standard error that is not 0. The greatest is `LARGEST`."""
_LONGEST_S = 30.0 * 86400.0
"""The greatest length of a window, and of its overhead, in seconds: our choice."""
_CONSISTENT = 3.0
"""The greatest factor between energy × items and power × seconds of one meter: our choice. Correct windows
differ by the batches at their ends."""
_TIMES_SHOWN = 3.0
"""The greatest factor by which a held window's rate and power exceed the range of the trials: our
choice."""
ONE_WITNESS = "one_witness"
"""The subject of a note: the rules that lacked a second witness in a window, and their corrections."""
NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
"""The pattern of a complete number: it takes a sign, a fraction and an exponent, but no `nan`."""
AGREEMENT = 0.15
"""The greatest share by which a device's counter and its power × time differ, as in the check under load:
our choice."""
LAG_S = 1.0
"""The greatest delay of a reported power, in seconds: some boards report the mean of the last second."""
STEP_S = 0.3
"""The greatest time from a window's end to a step of the counter; a counter steps every 0.1 s."""
STILL_S = 1.0
"""A counter that has not changed for this time in seconds, ten of its steps, does not count."""
_LEAST_LOOKS = 5
"""The least number of looks at a device that can show that it was idle."""
_LEAST_READS = 2
"""The least number of readings at which two counters must agree before they count as one."""
REPORT_S = 1.0
"""The greatest age of the counters that a service reports, in seconds."""
ROUND_OF = 8
"""Connections opened at once: four workers that count apart agree by chance once in 16,000 times."""
_SHORTEN = 120
_UNITS = ("ms", "s", "J", "W", "%")
_TOGETHER = (
    "let its processes count together (PROMETHEUS_MULTIPROC_DIR for Python's prometheus_client), run one "
    "worker, or measure by a [log]"
)


class RuleResult(StrEnum):
    """The conclusion of a rule on a window."""

    AGREES = "agrees"
    CONTRADICTED = "contradicted"
    CORRECTED = "corrected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """The conclusion of a rule, its reason `why`, and the next step `hint` if the figures disagree."""

    result: RuleResult = RuleResult.AGREES
    why: str = ""
    hint: str = ""
    rule: str = ""


def contradiction(why: str, hint: str = _AGAIN) -> RuleFinding:
    """Return a contradiction with its reason; agreement if `why` is empty."""
    return RuleFinding(RuleResult.CONTRADICTED, why, hint) if why else RuleFinding()


def unjudged(why: str) -> RuleFinding:
    """Return the finding that a window cannot be judged, with the reason."""
    return RuleFinding(RuleResult.UNKNOWN, why)


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
    Tolerance: {_LONGEST_S:.0f} s
    Source: ours
    Result: no measurement; at the tuner contaminated
    """
    window = one.window
    for name, length_s in (("seconds", window.seconds), ("overhead_s", window.overhead_s)):
        if length_s > _LONGEST_S:
            return contradiction(f"{name} is {length_s:.4g} s, beyond {_LONGEST_S:.4g} s")
    return contradiction(
        f"the foreign share is {window.foreign:.4g}, beyond 1" if window.foreign > 1.0 else ""
    )


def ranges(one: ReportedWindow) -> RuleFinding:
    """Can a quantity of this unit be so large or small?

    Witnesses: each estimate; the range of its unit
    Tolerance: least and most by unit: {_RANGES}; else {LARGEST:g}
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
    least, most = _RANGES.get(quantity.unit, (-LARGEST, LARGEST))
    if quantity.signed and least >= 0.0:
        least = -most
    unmoved = quantity.of_energy and mean <= 0.0
    if unmoved or (mean < least and mean != 0.0):
        return f"{name} is {mean:.4g}{unit}, below {max(least, 0.0):.4g}{unit}"
    if mean > most or doubt > most:
        return f"{name} is {mean:.4g} ± {doubt:.4g}{unit}, beyond {most:.4g}{unit}"
    if any(0.0 < abs(x) < _SMALLEST for x in (mean, doubt)):
        return f"{name} is {mean:.4g} ± {doubt:.4g}{unit}: closer to 0 than any meter can measure"
    return ""


def energy_beside_power(one: ReportedWindow) -> RuleFinding:
    """Do energy and power of a window fit each other?

    Witnesses: energy × items; power × seconds
    Tolerance: a factor of {_CONSISTENT:g}
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
    apart = not by_time / _CONSISTENT <= by_item <= _CONSISTENT * by_time
    return contradiction(
        f"{names[0]} × {items} items is {by_item:.4g} J, {names[1]} × {window.seconds:.4g} s is "
        f"{by_time:.4g} J: more than {_CONSISTENT:g} times apart"
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
    Tolerance: a factor of {_TIMES_SHOWN:g}
    Source: ours
    Result: at the tuner: kept, and not billed
    """
    rate, most, limit = one.completed / one.seconds, one.shown.most_rate_per_s, _TIMES_SHOWN
    drawn, (least_w, most_w), why = rate * one.energy_j, one.shown.power_w, ""
    if rate > limit * most:
        why = f"{rate:.4g} items/s, its trials measured at most {most:.4g}"
    elif one.completed and not least_w / limit <= drawn <= limit * most_w:
        why = f"{drawn:.4g} W, its trials measured {least_w:.4g} to {most_w:.4g} W"
    return contradiction(why and f"{why} (limit {limit:g} times that)")


def judged(facts: Iterable[Fact]) -> list[RuleFinding]:
    """Return the finding of each rule on each fact that it takes, in the order of the rules."""
    facts = list(facts)
    return [
        replace(rule(fact), rule=rule.__name__)
        for kind, rule in RULES
        for fact in facts
        if isinstance(fact, kind)
    ]


def demand(*facts: Fact) -> list[RuleFinding]:
    """Return the findings of the rules. Raises MeasurementError: a rule contradicts the figures."""
    findings = judged(facts)
    for one in findings:
        if one.result is RuleResult.CONTRADICTED:
            raise MeasurementError(one.why, hint=one.hint)
    return findings


def in_words(findings: Iterable[RuleFinding]) -> str:
    """Return in words the rules that lacked a witness, and the corrections; empty if there are none."""
    shown = (f for f in findings if f.result in (RuleResult.UNKNOWN, RuleResult.CORRECTED))
    return "; ".join(dict.fromkeys(f"{f.rule}: {f.result}, {f.why}" for f in shown))


def counter_beside_power(one: CounterAndPower) -> RuleFinding:
    """Does the energy counter count the energy that the device draws?

    Witnesses: its energy counter; the integral of its power
    Tolerance: {AGREEMENT:.0%}, as in its check under load; {STEP_S:g} s of the greatest power, for the
        counter's steps; {LAG_S:g} s of the spread of the power, for its averaging; of the energy drawn
        while idle the share by which the two differed at rest, all of it until that was measured: some
        counters show 0.57
    Source: arXiv 2312.02741; zeus issue 181
    Result: no measurement
    """
    if one.power_j is None:
        return unjudged(f"{one.meter}: {one.why}")
    slack_j = STEP_S * one.most_w + (LAG_S + one.gap_s) * one.spread_w + one.rest_j
    apart = abs(one.counted_j - one.power_j) > AGREEMENT * one.power_j + slack_j
    return contradiction(
        f"{one.meter}: the energy counter shows {one.counted_j:.4g} J, its power × time is "
        f"{one.power_j:.4g} J (limit {AGREEMENT:.0%} and {slack_j:.3g} J)"
        if apart
        else ""
    )


def counter_moves(one: CounterAndPower) -> RuleFinding:
    """Does the energy counter advance while the device works?

    Witnesses: its energy counter; its utilisation, or that a CPU's package always draws power
    Tolerance: {STILL_S:g} s: ten of a GPU's steps, a thousand of RAPL's
    Source: ml.energy, Thermally Stable Profiling; codecarbon issue 1321
    Result: no measurement; a GPU's counter is checked again under load
    """
    still = one.still_s > STILL_S
    why = f"{one.meter}: the energy counter did not change for {one.still_s:.3g} s" if still else ""
    return contradiction(why)


def zones_apart(one: ZoneReads) -> RuleFinding:
    """Do two RAPL zones of one kind count apart?

    Witnesses: the counter of each die
    Tolerance: none: at {_LEAST_READS} and more readings, the second lies between two of the first
    Source: codecarbon issues 1274 and 1379; raplcap issue 9: those of a Cascade Lake-AP do count apart
    Result: a mirrored zone is counted once, and the window notes it
    """
    why = f"{one.second} shows the counter of {one.first}; counted once"
    return RuleFinding(RuleResult.CORRECTED, why) if mirrored(one) else RuleFinding()


def mirrored(one: ZoneReads) -> bool:
    """Return whether two zones show the same counter, at readings between which it moved."""
    ring = one.range_uj + 1
    within = ((b - a) % ring <= (again - a) % ring for a, b, again in one.reads)
    return len({a for a, _, _ in one.reads}) >= _LEAST_READS and all(within)


def workload_here(one: WorkloadPlace) -> RuleFinding:
    """Does the workload compute on the measured device?

    Witnesses: NVML's processes of every GPU; the device's utilisation beside the items served
    Tolerance: none; without a process, a device is idle after {_LEAST_LOOKS} looks without work
    Source: CUDA C++ Programming Guide: CUDA_DEVICE_ORDER
    Result: no measurement, with the right device; a further device of the workload is noted
    """
    here, ours = {use.device for use in one.uses}, any(use.ours for use in one.uses)
    others = {k: n for use in one.uses for k, n in use.elsewhere.items() if k not in here}
    names, why = " and ".join(others.values()), next((u.why for u in one.uses if u.why), "")
    if others and ours:
        why = f"the workload also computes on {names}, which is not measured"
        return RuleFinding(RuleResult.CORRECTED, why)
    if others:
        return contradiction(
            f"the workload runs on {names}; use --device {'+'.join(others)}",
            "CUDA's order of devices is not NVML's: `nvidia-smi -L` lists NVML's",
        )
    if ours or not one.items:
        return RuleFinding()
    if why:
        return unjudged(why)
    looks = min(use.looks for use in one.uses)
    if not one.whole or looks < _LEAST_LOOKS or any(use.busy for use in one.uses):
        return unjudged("NVML lists no process of the workload")
    return contradiction(
        f"{' and '.join(use.name for use in one.uses)} had no process and no work in {looks} looks "
        f"while {one.items:.0f} items were served",
        "name the device that the workload runs on: `nvidia-smi` lists its process",
    )


def own_requests(one: OwnRequests) -> RuleFinding:
    """Does a counter of requests count at least our own?

    Witnesses: the service's counter; our load's completed requests
    Tolerance: the requests under way, and those of {REPORT_S:g} s, the age of a report
    Source: prometheus_client: Multiprocess Mode
    Result: no measurement
    """
    if not one.counts:
        return unjudged(f"{one.counter} does not count requests")
    recent = one.completed * min(1.0, REPORT_S / max(one.seconds, 1e-9))
    fewer = one.counted < one.completed - one.in_flight - recent
    return contradiction(
        f"{one.counter} counted {one.counted:.0f} requests, our own load completed "
        f"{one.completed:.0f}: it does not count all of them"
        if fewer
        else "",
        _TOGETHER,
    )


def one_counter(one: Scrapes) -> RuleFinding:
    """Is there one counter behind an address?

    Witnesses: rounds of {ROUND_OF} connections at once, twice as many where several processes listen, when
        the window ends; process_start_time_seconds
    Tolerance: none: no counter of a round is below one of the round before; several processes that cannot
        be compared contradict
    Source: prometheus_client: Multiprocess Mode
    Result: no measurement
    """
    if len(one.started) > 1:
        why = f"{len(one.started)} processes with counters of their own answer {one.url}"
        return contradiction(f"{why}: their start times differ", _TOGETHER)
    for name, most, least in _fallen(one.rounds):
        why = f"several counters answer {one.url}: one connection showed {name} at {most:g}"
        return contradiction(f"{why}, a later one at {least:g}", _TOGETHER)
    if one.why and one.processes > 1:
        why = (
            f"{one.processes} processes listen at {one.url}, and their counters cannot be compared"
        )
        return contradiction(f"{why}: {one.why}", _TOGETHER)
    return unjudged(f"{one.url}: {one.why}") if one.why else RuleFinding()


def _fallen(
    rounds: Sequence[Sequence[Mapping[str, float]]],
) -> Iterator[tuple[str, float, float]]:
    """Yield the counters that were higher in a round than in the next, with both numbers."""
    for before, after in pairwise(rounds):
        for name in sorted({name for answer in (*before, *after) for name in answer}):
            most = max(answer.get(name, 0.0) for answer in before)
            least = min(answer.get(name, 0.0) for answer in after)
            if most > least:
                yield name, most, least


def not_restarted(one: CounterStep) -> RuleFinding:
    """Is it the same program at both ends of the window?

    Witnesses: each counter at two readings; the start time
    Tolerance: none; a missing low bucket of a histogram counts as 0
    Source: Prometheus: counters and resets; nginx-lua-prometheus issues 31 and 39
    Result: no measurement
    """
    why = ""
    if one.started_now != one.started_before:
        why = f"the start time of {one.what} changed: it was restarted"
    elif one.now < one.before:
        why = f"{one.what} went backwards, from {one.before:g} to {one.now:g}: it was restarted"
    return contradiction(why, "check its log for the cause, and measure again")


_ENDS_INSIDE = re.compile(
    r"\d|[._'’\u00a0\u202f]\d|[eEdD][-+]?\d|(?:[eE][-+]?|[dD][-+])(?![\w/])"
    r"|\.?#(?:INF|IND|[QS]NAN)|\s?[x×*·]\s?10(?:\^|\*\*|[⁻⁰¹²³⁴-⁹])"
)
"""An exponent, also Fortran's 1.0D-03 or one that is cut, 1.#INF, × 10^-5."""
_HEXADECIMAL = re.compile(r"[-+]?0[xX][\da-fA-F]")
_SEPARATED = re.compile(r"(?:[,:]|d|h|m|min)\d")
"""A decimal comma, or a time such as 3:45 or 1h2m, unless the pattern has its other parts, too."""
_BEGINS_INSIDE = re.compile(r"(?:^|[\s=:(\[,;\"'])[-+]$|\d[.'’\u00a0\u202f]?$|\d[eEdD][-+]?$")
_FIRST_PARTS = re.compile(r"\d,$|\d ?(?:h|min) ?$|\d[dm] ?$")
_CLOCK, _SIXTIETHS = re.compile(r"(?:^|[^\w.@])\d+(?:[:.]\d+)*:$"), re.compile(r"\d|\d\d(?:\.\d*)?")
"""The first parts of 3:45, and its last: p99:12.3, recall@10:0.61 and epoch 3:0.52 are no times."""
_SPACED, _PART = re.compile(r"\d [dm] $"), re.compile(r"\s?(?:h|m|min|s)(?!\w)")
"""The first part of 2 d 5 h, and the unit of its last: phase 2 d 5 is no time."""
_UNIT = re.compile(r"([ \t]?)((?:[kKMGTP]i?[bB]?|[numµμ]?s|[numµμ%h]|min|[mk]?[WJ]))(?![\w/=:])")
"""A unit, or a factor of a thousand, after a number: programs print 950 ms and then 1.2 s."""


def whole_number(one: PrintedNumber) -> RuleFinding:
    """Is a printed number matched as a whole?

    Witnesses: the match of the pattern; the characters around it, also a unit that is not the declared
        one; the lines after it
    Tolerance: none
    Source: Python: float(), which takes signs, exponents and nan
    Result: no measurement, with the line
    """
    line = f"{one.before}{one.text}{one.after}".strip()[-_SHORTEN:]
    more = None if one.delimited else _SEPARATED.match(one.after)
    unit = None if one.delimited else _UNIT.match(one.after)
    ends = _ENDS_INSIDE.match(one.after) or _HEXADECIMAL.match(one.text + one.after)
    if more or ends or _begins_inside(one):
        return contradiction(
            f"the pattern matches {one.text!r}, only a part of the number in {line!r}",
            f"let its group match whole numbers, like ({NUMBER})",
        )
    if unit and unit[2] != one.unit and (one.unit in _UNITS or not unit[1]):
        return contradiction(
            f"the pattern matches {one.text!r} without its unit {unit[2]!r} in {line!r}",
            f"let it match the unit that it is declared in, like ({NUMBER}){unit[0]}",
        )
    return contradiction(
        f"after {line!r} comes {one.later[:_SHORTEN]!r}, which has no whole number there"
        if one.later
        else "",
        f"let the program end with a number that its group matches, like ({NUMBER})",
    )


def _begins_inside(one: PrintedNumber) -> bool:
    """Return whether a number began before its match; the pattern may have a time's first parts itself."""
    if _BEGINS_INSIDE.search(one.before):
        return True
    firsts = [_FIRST_PARTS]
    firsts += [_CLOCK] if _SIXTIETHS.fullmatch(one.text) else []
    firsts += [_SPACED] if _PART.match(one.after) else []
    return any(first.search(one.before) and not first.search(one.lead) for first in firsts)


def last_object(one: LastObject) -> RuleFinding:
    """Is the last JSON line whole?

    Witnesses: the last line that begins an object
    Tolerance: none
    Source: RFC 8259
    Result: no measurement
    """
    why = f"the last line that begins a JSON object is cut or broken: {one.line[-_SHORTEN:]!r}"
    return contradiction(f"{why} ({one.broken})" if one.broken else "", "let it write whole lines")


RULES: tuple[tuple[type[Fact], Callable[[Any], RuleFinding]], ...] = (
    (CounterAndPower, counter_moves),
    (CounterAndPower, counter_beside_power),
    (ZoneReads, zones_apart),
    (WorkloadPlace, workload_here),
    (Scrapes, one_counter),
    (CounterStep, not_restarted),
    (OwnRequests, own_requests),
    (PrintedNumber, whole_number),
    (LastObject, last_object),
    (ReportedWindow, lengths),
    (ReportedWindow, ranges),
    (ReportedWindow, energy_beside_power),
    (HeldClaim, within_trials),
)
"""Each rule with the fact that it takes. The first contradiction in this order is reported."""
