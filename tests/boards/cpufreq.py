"""The kernel's rules for CPU hotplug, clock policies, and the files that a governor changes.

Sources: drivers/cpufreq/cpufreq.c: `show` and `store` answer EBUSY while `policy_is_inactive`, all files
alike; `cpufreq_online` takes up an old policy with the limits (`max_freq_req`; commit 1608f023: "the value
before the last offline is retained"), governor and preference that it had; `cpufreq_policy_free`, when the
driver is unregistered, forgets them. drivers/cpufreq/amd-pstate.c, `amd_pstate_set_energy_pref_index` and
`show_energy_performance_available_preferences`; drivers/cpufreq/intel_pstate.c, `intel_pstate_hwp_set` and
`intel_pstate_set_energy_pref_index`. linrunner/TLP 265 and 775: after a resume ceilings are at their
maximum. Never compared with a real machine.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tests.boards.kernel import Limits, Node, Refused, Words, fixed

CPU = "/sys/devices/system/cpu"
CPUFREQ = f"{CPU}/cpufreq"
PERFORMANCE = "performance"
Scaling = Callable[..., Mapping[str, Words]]


@dataclass
class Cpus:
    """The CPUs of a machine, of which all but the first can be taken offline.

    `loads` counts the loads of the cpufreq driver; a policy whose CPUs were all `absent` at a load does not
    exist until one of them is online. `driven` is the state that is lost with the driver.
    """

    count: int
    offline: frozenset[int] = frozenset()
    absent: frozenset[int] = frozenset()
    loads: int = 1
    driven: list[object] = field(default_factory=list)
    policies: list[tuple[frozenset[int], Limits]] = field(default_factory=list)

    def take(self, cpu: int, text: str) -> None:
        if text not in ("0", "1"):
            raise Refused
        for members, limit in self.policies:
            if cpu in members <= self.offline and text == "1" and limit.boost:
                limit.own_boost = limit.boost.on
        self.offline = self.offline - {cpu} if text == "1" else self.offline | {cpu}
        self.absent &= self.offline

    def load(self) -> None:
        """Record that the cpufreq driver was reloaded."""
        self.loads, self.absent = self.loads + 1, self.offline

    def refusal(self, members: frozenset[int]) -> int:
        """Return the error of the files of these CPUs' policy; 0: none."""
        if members <= self.absent:
            return errno.ENOENT
        return errno.EBUSY if members <= self.offline else 0

    def nodes(self) -> dict[str, Node]:
        """Return the files of the CPUs themselves."""
        nodes = {
            f"{CPU}/cpu{cpu}/online": Node(partial(self._online, cpu), partial(self.take, cpu))
            for cpu in range(1, self.count)
        }
        spans = lambda: listed(set(range(self.count)) - self.offline)  # noqa: E731
        return nodes | {
            f"{CPU}/online": Node(spans),
            f"{CPU}/present": fixed(f"0-{self.count - 1}"),
        }

    def _online(self, cpu: int) -> int:
        return int(cpu not in self.offline)


def listed(cpus: set[int]) -> str:
    """Return CPUs as the kernel lists them: 0-2,4."""
    starts = sorted(cpu for cpu in cpus if cpu - 1 not in cpus)
    ends = sorted(cpu for cpu in cpus if cpu + 1 not in cpus)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


@dataclass
class Governor(Words):
    """The governor of a driver that scales by itself: `performance` also changes the preference."""

    preference: Preference | None = None

    def take(self, text: str) -> None:
        before = self.word
        Words.take(self, text)
        if self.preference and before != text:
            self.preference.governed(text)


@dataclass
class Preference(Words):
    """An energy preference.

    Under the governor `performance` it is `performance`, and other values are refused (EBUSY). `amd`: no
    other value is listed then either, and it stays when the governor is restored. Else `intel`: the earlier
    value returns, unless another was written. `default` can be written but is never shown: both drivers
    show the actual value (show_energy_performance_preference).
    """

    amd: bool = False
    governor: str = ""
    saved: str = ""

    def governed(self, by: str) -> None:
        self.governor = by
        if by == PERFORMANCE:
            self.saved, self.word = self.word, PERFORMANCE
        elif not self.amd and self.word == PERFORMANCE:
            self.word = self.saved or self.word

    def take(self, text: str) -> None:
        if text in self.offered and text != PERFORMANCE == self.governor:
            raise Refused(errno.EBUSY)
        Words.take(self, "balance_performance" if text == "default" else text)

    @property
    def listed(self) -> str:
        """The values that are listed as available."""
        return PERFORMANCE if self.amd and self.governor == PERFORMANCE else " ".join(self.offered)


def scaling(governor: str, preference: str, *, amd: bool) -> Mapping[str, Words]:
    """Return the governor of such a driver and its preference, by file."""
    words = ("default", PERFORMANCE, "balance_performance", "balance_power", "power")
    moved = Preference(words, preference, amd, governor)
    return {
        "scaling_governor": Governor((PERFORMANCE, "powersave"), governor, moved),
        "energy_performance_preference": moved,
    }


def policies(
    limits: Sequence[Limits],
    cpus: Cpus,
    extra: Callable[[Limits], Mapping[str, Node]],
    driver: str = "fake",
) -> dict[str, Node]:
    """Return the cpufreq folders of CPUs that share policies evenly, and the CPUs' own files."""
    nodes: dict[str, Node] = {}
    each = cpus.count // len(limits)
    cpus.driven += limits
    for number, limit in enumerate(limits):
        members = frozenset(range(number * each, (number + 1) * each))
        cpus.policies.append((members, limit))
        files = limit.nodes("", "scaling_min_freq", "scaling_max_freq")
        files |= {f"/{name}": node for name, node in extra(limit).items()}
        files |= {
            "/scaling_driver": fixed(driver),
            "/affected_cpus": Node(partial(_working, cpus, members)),
            "/related_cpus": fixed(" ".join(map(str, sorted(members)))),
            "/cpuinfo_min_freq": fixed(limit.least),
            "/cpuinfo_max_freq": Node(partial(getattr, limit, "top")),
            "/scaling_cur_freq": Node(partial(getattr, limit, "runs")),
        }
        if limit.table:
            files["/scaling_available_frequencies"] = fixed(" ".join(map(str, limit.table)))
        refusal = partial(cpus.refusal, members)
        folder = f"{CPUFREQ}/policy{min(members)}"
        nodes |= {folder + name: replace(node, refusal=refusal) for name, node in files.items()}
    return nodes | cpus.nodes()


def _working(cpus: Cpus, members: frozenset[int]) -> str:
    return " ".join(map(str, sorted(members - cpus.offline)))
