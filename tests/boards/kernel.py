"""Files that behave like the kernel's: limits that refuse, values that are rounded, counters that wrap.

Sources: drivers/devfreq/devfreq.c, drivers/cpufreq/cpufreq.c and drivers/powercap/powercap_sys.c of the
kernel; the behaviour of NVIDIA's firmware with a locked memory clock is from public scripts. Never compared
with a real board.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Tell = Callable[[], object]
Take = Callable[[str], None]


class Refused(OSError):
    """The kernel's error for a refused write."""

    def __init__(self, number: int = errno.EINVAL) -> None:
        super().__init__(number, os.strerror(number))


@dataclass
class Node:
    """One file: the functions for reads and for writes; None: read-only.

    `refusal` returns the present error of reads and writes; 0: none. `kept` is its content without the
    error.
    """

    tell: Tell
    take: Take | None = None
    mode: int = 0o644
    refusal: Callable[[], int] = int

    @property
    def kept(self) -> bytes:
        told = self.tell()
        return told if isinstance(told, bytes) else f"{told}\n".encode()

    def read(self) -> bytes:
        self._answer()
        return self.kept

    def write(self, text: str) -> None:
        self._answer()
        if self.take is None:
            raise Refused(errno.EACCES)
        self.take(text.strip())

    def _answer(self) -> None:
        if number := self.refusal():
            raise Refused(number)


def fixed(value: object, mode: int = 0o444) -> Node:
    """Return a file with constant content."""
    return Node(lambda: value, None, mode)


def whole(text: str) -> int:
    """Return a written number. Raises Refused."""
    try:
        return int(text)
    except ValueError:
        raise Refused from None


@dataclass
class Limits:
    """A clock between two limits, in the files' units; `cap` clamps a policy silently.

    With a `table`, a value outside it is silently rounded up. With boost off the top is the `nominal`
    clock, if it is given; at its top rung, with boost on, the present clock is `boosted`, as APERF and
    MPERF measure it.
    """

    least: int
    most: int
    table: Sequence[int] = ()
    cap: int = 0
    low: int = 0
    high: int = 0
    nominal: int = 0
    boosted: int = 0
    boost: Boost | None = None
    own_boost: bool = True

    def __post_init__(self) -> None:
        self.low, self.high = self.low or self.least, self.high or self.most

    @property
    def ceiling(self) -> int:
        """The limit in force."""
        return min(self.high, self.cap or self.high, self.top)

    @property
    def top(self) -> int:
        """The present maximum of the limit."""
        return self.nominal if self.nominal and self.boost and not self.boosts else self.most

    @property
    def boosts(self) -> bool:
        """Whether clocks above the nominal one are allowed, by its driver and by its policy."""
        return bool(self.boost and self.boost.on and self.own_boost)

    @property
    def runs(self) -> int:
        """The clock of a busy CPU."""
        above = self.boosted and self.boosts and self.ceiling >= self.most
        return self.boosted if above else self.ceiling

    def set_low(self, text: str) -> None:
        value = self._rounded(whole(text) or self.least)
        if value > self.high:
            raise Refused
        self.low = value

    def set_high(self, text: str) -> None:
        value = self._rounded(whole(text) or self.most)
        if value < self.low:
            raise Refused
        self.high = value

    def _rounded(self, value: int) -> int:
        above = [step for step in self.table if step >= value]
        value = above[0] if above else value
        return min(max(value, self.least), self.most)

    def nodes(self, folder: str, low: str, high: str) -> dict[str, Node]:
        """Return the two files of the limits."""
        return {
            f"{folder}/{low}": Node(lambda: self.low, self.set_low),
            f"{folder}/{high}": Node(lambda: self.ceiling, self.set_high),
        }


@dataclass
class Boost:
    """Whether clocks above the nominal one are allowed: the file then contains `allows`.

    One that `forgets` sets every ceiling to the new top, as older kernels did (cpufreq_boost_set_sw). With
    `each` every policy has its own boost beside it: it follows (cpufreq_boost_trigger_state), also when its
    CPU comes online (cpufreq_online), and takes nothing while boost is off (store_local_boost). `least_pct`
    is intel_pstate's least share of the greatest clock: boost off squashes it to the nominal clock's, and
    it stays there (store_no_turbo).
    """

    path: str
    limits: Sequence[Limits]
    allows: str = "1"
    forgets: bool = False
    on: bool = True
    each: bool = False
    least_pct: int = 0

    def __post_init__(self) -> None:
        for limit in self.limits:
            limit.boost = self

    def take(self, text: str) -> None:
        if text not in ("0", "1"):
            raise Refused
        self.on = text == self.allows
        for limit in self.limits:
            limit.own_boost = self.on
        for limit in self.limits if self.forgets else ():
            limit.high = limit.top
        if not self.on:
            squashed = 100 * self.limits[0].nominal // self.limits[0].most
            self.least_pct = min(self.least_pct, squashed)

    def set_least(self, text: str) -> None:
        most = 100 if self.on else 100 * self.limits[0].nominal // self.limits[0].most
        self.least_pct = min(whole(text), most)

    def node(self) -> Node:
        return Node(lambda: int(self.on == (self.allows == "1")), self.take)

    def own(self, limit: Limits) -> Node:
        """Return the boost of one policy."""

        def take(text: str) -> None:
            if text not in ("0", "1") or not self.on:
                raise Refused
            limit.own_boost = text == "1"

        return Node(lambda: int(limit.own_boost), take)


@dataclass
class Words:
    """A choice among words, like a governor."""

    offered: Sequence[str]
    word: str

    def take(self, text: str) -> None:
        if text not in self.offered:
            raise Refused
        self.word = text

    def node(self) -> Node:
        return Node(lambda: self.word, self.take)


@dataclass
class Tunable:
    """A number of a governor: its file exists while a policy has that governor; its value is lost with the
    last one.

    Source: sugov_exit of kernel/sched/cpufreq_schedutil.c and cpufreq_dbs_governor_exit of
    drivers/cpufreq/cpufreq_governor.c free it; their init functions begin with the default.
    """

    governor: str
    default: int
    value: int
    users: list[TunedGovernor] = field(default_factory=list)

    @property
    def used(self) -> bool:
        return any(user.word == self.governor for user in self.users)

    def take(self, text: str) -> None:
        self.value = whole(text)

    def node(self) -> Node:
        return Node(lambda: self.value, self.take, refusal=lambda: 0 if self.used else errno.ENOENT)


@dataclass
class SetSpeed(Tunable):
    """The clock of the governor `userspace`: under it a number, at first the present clock.

    Source: drivers/cpufreq/cpufreq_userspace.c (cpufreq_userspace_policy_start); show_scaling_setspeed.
    """

    def take(self, text: str) -> None:
        if not self.used:
            raise Refused
        Tunable.take(self, text)

    def node(self) -> Node:
        return Node(lambda: self.value if self.used else "<unsupported>", self.take)


@dataclass
class TunedGovernor(Words):
    """A governor with numbers that can be set."""

    tunables: Sequence[Tunable] = ()

    def __post_init__(self) -> None:
        for tunable in self.tunables:
            tunable.users.append(self)

    def take(self, text: str) -> None:
        Words.take(self, text)
        for tunable in self.tunables:
            tunable.value = tunable.value if tunable.used else tunable.default


@dataclass
class MemoryClock:
    """The memory clock, which the firmware sets until it is locked; a locked value is rounded down."""

    rates: Sequence[int]
    chosen: int
    locked: bool = False
    asked: int = 0

    @property
    def rate(self) -> int:
        return self.asked if self.locked and self.asked else self.chosen

    def lock(self, text: str) -> None:
        self.locked = bool(whole(text))
        self.asked = self.asked if self.locked else 0

    def set_rate(self, text: str) -> None:
        """Set a rate; without the lock the firmware ignores it."""
        under = [rate for rate in self.rates if rate <= whole(text)]
        if self.locked:
            self.asked = under[-1] if under else self.rates[0]

    def nodes(self, folder: str) -> dict[str, Node]:
        """Return the firmware's files; only root reads them."""
        clock = f"{folder}/clk/emc"
        return {
            f"{clock}/rate": Node(lambda: self.rate, self.set_rate, 0o600),
            f"{clock}/mrq_rate_locked": Node(lambda: int(self.locked), self.lock, 0o600),
            f"{clock}/min_rate": fixed(self.rates[0], 0o400),
            f"{clock}/max_rate": fixed(self.rates[-1], 0o400),
            f"{folder}/emc/possible_rates": fixed(
                " ".join(str(rate // 1000) for rate in self.rates) + " (kHz)", 0o400
            ),
        }


@dataclass
class Counter:
    """An energy counter in microjoules, which wraps at its range."""

    joules: Callable[[], float]
    range_uj: int
    begin_uj: int = 0

    def restart(self) -> None:
        """Restart at 0, as after a resume or a reload of the driver."""
        self.begin_uj = -int(self.joules() * 1e6)

    def tell(self) -> int:
        return (self.begin_uj + int(self.joules() * 1e6)) % (self.range_uj + 1)


@dataclass
class PowerLimit:
    """One of a package's power limits in microwatts, clamped to the hardware's maximum."""

    limit_uw: int
    most_uw: int

    def take(self, text: str) -> None:
        if whole(text) < 0:
            raise Refused
        self.limit_uw = min(whole(text), 4 * self.most_uw)

    def node(self) -> Node:
        return Node(lambda: self.limit_uw, self.take)
