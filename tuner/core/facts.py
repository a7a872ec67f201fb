"""What meters report beside their figures, the second witnesses, and what a rule concludes of them."""

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
    """Something that a rule takes. `why` gives the reason where its second witness is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterAndPower(Fact):
    """The energy counter of a device, and its power × time in J; None where that is unknown.

    `most_w` is the greatest power of its samples, `spread_w` that less the least, `gap_s` the longest time
    between two, `rest_j` what was drawn without work. `still_s` is the longest time for which the counter
    stood while the device worked.
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
    """Two energy counters of one package, in µJ: each read is of the first, the second, the first again.

    Both start again after `range_uj`.
    """

    first: str
    second: str
    range_uj: int
    reads: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse(Fact):
    """Whether the workload's processes compute on a device, and on which others of the host.

    `device` is what `--device` takes, `name` how it is shown; `elsewhere` gives the name of each other
    device with processes of the workload. `looks` counts the looks at it, `busy` whether it worked in any.
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
    """Where a workload computes, and the items that it served.

    `whole` is whether the target has no other device.
    """

    uses: tuple[DeviceUse, ...]
    items: float
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequests(Fact):
    """A service's counter beside the requests of our own load that were completed in `seconds`.

    `in_flight` is how many of them may be under way. `counts` is False for a counter of anything but
    requests.
    """

    counter: str
    counted: float
    completed: float
    in_flight: float
    seconds: float
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrapes(Fact):
    """The counters that each of several connections to one address showed, in rounds.

    A round begins when all of the one before was answered. `started` has the start times among them.
    """

    url: str
    rounds: tuple[tuple[Mapping[str, float], ...], ...] = ()
    started: frozenset[float] = frozenset()
    why: str = ""


@dataclass(frozen=True, slots=True)
class CounterStep(Fact):
    """A counter, or a part of one, at two readings, with the start times of its program where known."""

    what: str
    before: float
    now: float
    started_before: object = None
    started_now: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedNumber(Fact):
    """A number that a pattern matched, between the texts `before` and `after` of its line.

    `delimited` is whether the pattern itself matches what comes after. `later` is a later line, or the end
    of the output, that begins like the match and has no number there.
    """

    text: str
    before: str
    after: str
    delimited: bool = False
    later: str = ""


@dataclass(frozen=True, slots=True)
class LastObject(Fact):
    """The last line of an output that begins a JSON object, and why it cannot be read; empty if it can."""

    line: str
    broken: str


AGAIN = "measure again; if it repeats, run `jouletune doctor`"


class RuleResult(StrEnum):
    """What a rule concludes of a window."""

    AGREES = "agrees"
    CONTRADICTED = "contradicted"
    CORRECTED = "corrected"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """What a rule concludes, in words; the next step where the figures contradict each other."""

    result: RuleResult = RuleResult.AGREES
    why: str = ""
    hint: str = ""
    rule: str = ""


def contradiction(why: str, hint: str = AGAIN) -> RuleFinding:
    """Return a contradiction; agreement where there is no reason for one."""
    return RuleFinding(RuleResult.CONTRADICTED, why, hint) if why else RuleFinding()


def unjudged(why: str) -> RuleFinding:
    return RuleFinding(RuleResult.UNKNOWN, why)
