"""Facts that meters report beside their figures, as second witnesses, and the findings of rules on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.compat import StrEnum

__all__ = [
    "CounterAndPower",
    "CounterStep",
    "DeviceUse",
    "Fact",
    "LastObject",
    "OwnRequests",
    "PrintedNumber",
    "RuleFinding",
    "RuleResult",
    "Scrapes",
    "WorkloadPlace",
    "ZoneReads",
]


@dataclass(frozen=True, slots=True)
class Fact:
    """The input of a rule. Its `why`, if it has one, is the reason for a missing second witness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterAndPower(Fact):
    """A device's energy by its counter, and by power × time; the latter is None if unknown. Both in J.

    `most_w` is the greatest power of the samples, `spread_w` its difference from the least, `gap_s` the
    longest time between two samples, `rest_j` the doubtful energy at rest. `still_s` is the longest time
    during which the counter did not change although the device worked.
    """

    meter: str
    counted_j: float
    power_j: float | None = None
    most_w: float = 0.0
    spread_w: float = 0.0
    gap_s: float = 0.0
    rest_j: float = 0.0
    still_s: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneReads(Fact):
    """Two energy counters of one kind, in µJ. Each entry of `reads` is first, second, first again.

    Both counters wrap at `range_uj`.
    """

    first: str
    second: str
    range_uj: int
    reads: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse(Fact):
    """Whether the workload's processes compute on a device, and on which others of the host.

    `device` is the value for `--device` and `name` the displayed name. `ours` is whether processes of the
    workload run on it; `elsewhere` has the other devices on which they do, as `--device` value and name.
    `looks` is the number of observations, `busy` whether the device worked in any of them.
    """

    device: str
    name: str
    ours: bool
    busy: bool
    looks: int
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadPlace(Fact):
    """The devices on which a workload computes, and the items that it served.

    `whole` is whether `uses` covers all devices of the target.
    """

    uses: tuple[DeviceUse, ...]
    items: float
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequests(Fact):
    """A service's counter beside the requests that our own load completed in `seconds`.

    `in_flight` is the greatest number of its requests at once. `counts` is False if the counter does not
    count requests.
    """

    counter: str
    counted: float
    completed: float
    in_flight: float
    seconds: float
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrapes(Fact):
    """The counters read over each of several connections to one address, in rounds.

    A round begins once every connection of the previous round has answered; the last one may be incomplete.
    `started` has the programs' start times among the answers; `processes` listen at the address.
    """

    url: str
    rounds: tuple[tuple[Mapping[str, float], ...], ...] = ()
    started: frozenset[float] = frozenset()
    processes: int = 1
    why: str = ""


@dataclass(frozen=True, slots=True)
class CounterStep(Fact):
    """A counter, or a part of one, at two readings, with the program's start time at each if known."""

    what: str
    before: float
    now: float
    started_before: object = None
    started_now: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedNumber(Fact):
    """A number that a pattern matched, between the texts `before` and `after` of its line.

    `delimited` is whether the pattern itself also matches the text after the number; `lead` is the text
    before it that the pattern matches; `unit` is its declared unit. `later` is a later line, or the end of
    the output, that begins like the match but has no number in its place.
    """

    text: str
    before: str
    after: str
    delimited: bool = False
    unit: str = ""
    later: str = ""
    lead: str = ""


@dataclass(frozen=True, slots=True)
class LastObject(Fact):
    """The last line of an output that begins a JSON object; `broken` is why it cannot be read, if so."""

    line: str
    broken: str


AGAIN = "measure again; if it repeats, run `jouletune doctor`"


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


def contradiction(why: str, hint: str = AGAIN) -> RuleFinding:
    """Return a contradiction with its reason; agreement if `why` is empty."""
    return RuleFinding(RuleResult.CONTRADICTED, why, hint) if why else RuleFinding()


def unjudged(why: str) -> RuleFinding:
    """Return the finding that a window cannot be judged, with the reason."""
    return RuleFinding(RuleResult.UNKNOWN, why)
