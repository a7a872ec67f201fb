"""The mounted servers: the files that the drivers of each family of CPUs show and refuse.

The layouts are from the documentation of the kernel (cpufreq, intel_pstate, amd-pstate, powercap); figures
of a special case are from the public report named beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from agents.devices.simulated.physics import Chip, Curve, Thermal, Unit, Work
from tests.boards.board import Board
from tests.boards.cpufreq import CPUFREQ, Cpus, Preference, policies, scaling
from tests.boards.kernel import (
    Boost,
    Counter,
    Limits,
    Node,
    PowerLimit,
    SetSpeed,
    Tunable,
    TunedGovernor,
    Words,
    fixed,
)
from tests.boards.machine import Machine

BOOST = f"{CPUFREQ}/boost"
GOVERNORS = ("ondemand", "performance", "schedutil")
NO_TURBO = "/sys/devices/system/cpu/intel_pstate/no_turbo"
LEAST_SHARE = NO_TURBO.replace("no_turbo", "min_perf_pct")
"""tuned's profiles for servers set it to 100."""

SERVER = Chip(
    gpu=Unit(max_mhz=1.0, watts_per_mhz=0.0, waiting=0.0, curve=Curve(1e9, 0.0)),
    mem=Unit(max_mhz=2400, watts_per_mhz=0.008, waiting=0.4, curve=Curve(1e9, 0.0)),
    cpu=Unit(max_mhz=3800, watts_per_mhz=0.022, waiting=0.3, curve=Curve(2000.0, 0.0004)),
    idle_w=45.0,
    thermal=Thermal(ambient_c=30.0, leak_w=8.0, leak_per_k=0.008, k_per_w=0.12, j_per_k=180.0),
    overlap=0.0,
    min_gpu_mhz=1.0,
)
SERVED = Work(
    compute_fixed_ms=0.0,
    compute_ms=0.0,
    memory_fixed_ms=0.5,
    memory_ms=0.3,
    host_fixed_ms=1.0,
    host_ms=1.2,
)


def zone(folder: str, name: str, counter: Counter) -> dict[str, Node]:
    """Return a powercap zone with a counter and no limits."""
    return {
        f"{folder}/name": fixed(name),
        f"{folder}/energy_uj": Node(counter.tell, None, 0o400),
        f"{folder}/max_energy_range_uj": fixed(counter.range_uj),
    }


def server(
    name: str,
    model: str,
    limits: Sequence[Limits],
    cpus: int,
    words: Callable[[], Mapping[str, Words]],
    *,
    packages: int,
    limited: bool,
    uncore: bool,
    driver: str = "fake",
    boost: Boost | None = None,
) -> Board:
    """Return a server with this many packages; `boost` is the file that affects all its clocks."""
    range_uj = 262_143_328_850
    caps = [PowerLimit(w, 125_000_000) for w in (125_000_000, 150_000_000) for _ in range(packages)]
    mesh = [Limits(800_000, 2_400_000) for _ in range(packages)]
    chosen = [words() for _ in limits]

    def clocks() -> tuple[float, float, float, float]:
        cap = min(c.limit_uw for c in caps) / 1e6 * packages if limited else math.inf
        slowest = min(limit.runs for limit in limits) / 1000.0
        fabric = min(m.ceiling for m in mesh) / 1000.0 if uncore else 2400.0
        return 1.0, fabric, slowest, cap + 80.0

    machine = Machine(SERVER, SERVED, clocks, batch=4)
    by_limit = dict(zip(map(id, limits), chosen, strict=True))

    def extra(limit: Limits) -> dict[str, Node]:
        extra_nodes: dict[str, Node] = {}
        if boost is not None and boost.each:
            extra_nodes["boost"] = boost.own(limit)
        for file, choice in by_limit[id(limit)].items():
            plural = (
                "scaling_available_governors"
                if file == "scaling_governor"
                else "energy_performance_available_preferences"
            )
            listed = partial(getattr, choice, "listed") if isinstance(choice, Preference) else None
            listing = Node(listed) if listed else fixed(" ".join(choice.offered))
            extra_nodes |= {file: choice.node(), plural: listing}
        return extra_nodes

    online = Cpus(cpus)
    nodes, counters = policies(limits, online, extra, driver), list[Counter]()
    if boost is not None:
        nodes[boost.path] = boost.node()
        if boost.least_pct:
            nodes[LEAST_SHARE] = Node(lambda: boost.least_pct, boost.set_least)
    for p in range(packages):
        folder = f"/sys/class/powercap/intel-rapl:{p}"
        for part, (title, share) in {
            "": (f"package-{p}", 0.8),
            f":{p}:0": ("dram", 0.1),
            f":{p}:1": ("core", 0.5),
        }.items():
            place = folder if not part else f"{folder.rpartition(':')[0]}{part}"
            joules = lambda share=share: machine.energy_j * share / packages  # noqa: E731
            begin_uj = range_uj - 5_000_000 - 700_000_000 * p  # sockets count apart
            counters.append(Counter(joules, range_uj, begin_uj))
            nodes |= zone(place, title, counters[-1])
        if limited:
            nodes[f"{folder}/enabled"] = Words(("0", "1"), "1").node()
        for number, (title, cap) in enumerate(
            (("long_term", caps[p]), ("short_term", caps[packages + p]))
        ):
            if limited:
                nodes |= {
                    f"{folder}/constraint_{number}_name": fixed(title),
                    f"{folder}/constraint_{number}_power_limit_uw": cap.node(),
                    f"{folder}/constraint_{number}_max_power_uw": fixed(
                        cap.most_uw if number == 0 else 0
                    ),
                }
        if uncore:
            die = f"/sys/devices/system/cpu/intel_uncore_frequency/package_{p:02}_die_00"
            nodes |= mesh[p].nodes(die, "min_freq_khz", "max_freq_khz") | {
                f"{die}/initial_min_freq_khz": fixed(800_000),
                f"{die}/initial_max_freq_khz": fixed(2_400_000),
            }
    nodes |= {
        "/proc/cpuinfo": fixed(f"processor\t: 0\nmodel name\t: {model}"),
        "/proc/sys/kernel/osrelease": fixed("6.8.0"),
        "/proc/stat": Node(lambda: f"cpu  {int(machine.now() * 100)} 0 0 1000000 0 0 0 0 0 0"),
    }
    board = Board(name, machine, nodes)
    boosts = [boost] if boost else []
    words_of = [word for choice in chosen for word in choice.values()]
    online.driven += [*boosts, *words_of]
    return board.keep(online, *limits, *caps, *mesh, *counters, *boosts, *words_of)


def xeon() -> Board:
    """Return two sockets of intel_pstate: a range, one policy per CPU, RAPL limits, uncore."""
    words = partial(scaling, "powersave", "balance_performance", amd=False)
    limits = [Limits(800_000, 3_800_000, nominal=2_400_000) for _ in range(4)]
    board = server(
        "xeon", "Intel(R) Xeon(R) (fake)", limits, 8, words, packages=2, limited=True, uncore=True,
        driver="intel_pstate", boost=Boost(NO_TURBO, limits, allows="0", least_pct=100),
    )  # fmt: skip
    board.nodes["/sys/devices/system/cpu/intel_pstate/status"] = fixed("active")
    return board


def epyc() -> Board:
    """Return amd-pstate: a range with a least efficient clock; energy, no limits.

    A server's governor is `performance` by default (amd_pstate_epp_cpu_init), so its preference is, too.
    """
    words = partial(scaling, "performance", "performance", amd=True)
    limits = [Limits(400_000, 3_700_000, nominal=2_600_000) for _ in range(4)]
    board = server(
        "epyc", "AMD EPYC (fake)", limits, 8, words, packages=1, limited=False, uncore=False,
        driver="amd-pstate-epp", boost=Boost(BOOST, limits, each=True),
    )  # fmt: skip
    for number in range(0, 8, 2):
        board.nodes[f"{CPUFREQ}/policy{number}/amd_pstate_lowest_nonlinear_freq"] = fixed(1_500_000)
    return board


def arm() -> Board:
    """Return an Arm server: tables, two kinds of cores, no energy."""

    rates = [Tunable("schedutil", 10_000, 500) for _ in range(3)]
    free = iter(rates)

    def words() -> Mapping[str, Words]:
        return {"scaling_governor": TunedGovernor(GOVERNORS, "schedutil", [next(free)])}

    big = tuple(range(1_000_000, 3_000_001, 250_000))
    little = tuple(range(600_000, 1_800_001, 200_000))
    limits = [Limits(t[0], t[-1], t) for t in (big, big, little)]
    board = server(
        "arm", "Neoverse (fake)", limits, 12, words, packages=1, limited=False, uncore=False
    )
    board.nodes = {p: n for p, n in board.nodes.items() if "powercap" not in p}
    board.nodes["/proc/cpuinfo"] = fixed("processor\t: 0\nCPU implementer\t: 0x41")
    # Arm's drivers have a governor for each policy (CPUFREQ_HAVE_GOVERNOR_PER_POLICY).
    return tuned(
        board,
        {f"policy{n}/schedutil/rate_limit_us": r for n, r in zip((0, 4, 8), rates, strict=True)},
    )


def tuned(board: Board, numbers: Mapping[str, Tunable]) -> Board:
    """Return a board on which an operator has set numbers of governors, by file."""
    board.nodes |= {f"{CPUFREQ}/{name}": number.node() for name, number in numbers.items()}
    board.begin = board.snapshot()
    for cpus in (one for one in board.state if isinstance(one, Cpus)):
        cpus.driven += numbers.values()
    return board.keep(*board.state, *numbers.values())


def governed(*tunables: Tunable) -> Mapping[str, Words]:
    """Return the governors of a driver that has tables."""
    return {"scaling_governor": TunedGovernor(GOVERNORS, "ondemand", tunables)}


def zen() -> Board:
    """Return an EPYC under acpi-cpufreq: at its top rung it shows 2.89 GHz over a ceiling of 2.3.

    Its kernel sets every ceiling to the top when boost is set (util-linux 755; cpufreq_boost_set_sw).
    """
    table = (1_200_000, 1_700_000, 2_300_000)
    limits = [Limits(table[0], table[-1], table, boosted=2_894_214) for _ in range(2)]
    threshold, rate = Tunable("ondemand", 95, 60), Tunable("schedutil", 10_000, 10_000)
    board = server(
        "zen", "AMD EPYC 7451 (fake)", limits, 4, partial(governed, threshold, rate), packages=2,
        limited=False, uncore=False, driver="acpi-cpufreq", boost=Boost(BOOST, limits, forgets=True),
    )  # fmt: skip
    return tuned(board, {"ondemand/up_threshold": threshold, "schedutil/rate_limit_us": rate})


def ryzen() -> Board:
    """Return amd-pstate with preferred cores: identical cores, each with its own maximum (tvm 8370)."""
    tops = (5_759_000, 5_759_000, 5_684_000, 5_609_000, 5_534_000, 5_459_000, 5_383_000, 5_308_000)
    limits = [Limits(400_000, top, nominal=4_500_000) for top in tops]
    words = partial(scaling, "powersave", "balance_performance", amd=True)
    board = server(
        "ryzen", "AMD Ryzen 9 (fake)", limits, 8, words, packages=1, limited=False, uncore=False,
        driver="amd-pstate-epp", boost=Boost(BOOST, limits, each=True),
    )  # fmt: skip
    for number, top in enumerate(tops):
        ranking = fixed(top // 25_000)
        board.nodes[f"{CPUFREQ}/policy{number}/amd_pstate_prefcore_ranking"] = ranking
    return board


def hybrid() -> Board:
    """Return a hybrid of intel_pstate: performance cores with favoured ones, and efficiency cores."""
    big = [Limits(800_000, top, nominal=3_000_000) for top in (5_500_000, 5_800_000)]
    limits = [*big, *(Limits(800_000, 4_300_000, nominal=2_200_000) for _ in range(2))]
    board = server(
        "hybrid", "Intel(R) Core(TM) i9 (fake)", limits, 4, governed, packages=1, limited=True,
        uncore=False, driver="intel_pstate", boost=Boost(NO_TURBO, limits, allows="0"),
    )  # fmt: skip
    board.nodes["/sys/devices/cpu_core/cpus"] = fixed("0-1")
    board.nodes["/sys/devices/cpu_atom/cpus"] = fixed("2-3")
    return board


def sixteen() -> Board:
    """Return a machine of sixteen packages: the kernel numbers their zones from 0 to 15."""
    limits = [Limits(800_000, 3_500_000) for _ in range(16)]
    return server(
        "sixteen", "Intel(R) Xeon(R) of 16 (fake)", limits, 16, governed, packages=16, limited=True,
        uncore=False, driver="intel_pstate",
    )  # fmt: skip


SERVERS: Mapping[str, Callable[[], Board]] = {
    made.__name__: made for made in (xeon, epyc, arm, zen, ryzen, hybrid, sixteen)
}


def small(name: str, governor: str, preference: str, *, amd: bool) -> Board:
    """Return a machine of two CPUs with a policy each, of amd-pstate or of intel_pstate."""
    limits = [Limits(400_000, top, nominal=1_800_000) for top in (3_000_000, 2_900_000)]
    intel = partial(Boost, NO_TURBO, allows="0", least_pct=100)
    boost = Boost(BOOST, limits, each=True) if amd else intel(limits)
    return server(
        name, f"{name} (fake)", limits, 2, partial(scaling, governor, preference, amd=amd), packages=1,
        limited=False, uncore=False, driver="amd-pstate-epp" if amd else "intel_pstate", boost=boost,
    )  # fmt: skip


def manual() -> Board:
    """Return acpi-cpufreq whose operator has chosen a clock by hand, and another one for the second CPU."""
    table = (1_200_000, 1_700_000, 2_300_000)
    limits = [Limits(table[0], table[-1], table) for _ in range(2)]
    speeds = [SetSpeed("userspace", table[-1], speed) for speed in table[:2]]
    free = iter(speeds)

    def words() -> Mapping[str, Words]:
        return {
            "scaling_governor": TunedGovernor((*GOVERNORS, "userspace"), "userspace", [next(free)])
        }

    board = server(
        "manual", "manual (fake)", limits, 2, words, packages=1, limited=False, uncore=False,
        driver="acpi-cpufreq",
    )  # fmt: skip
    return tuned(board, {f"policy{n}/scaling_setspeed": speed for n, speed in enumerate(speeds)})


SMALL: Mapping[str, Callable[[], Board]] = {
    "manual": manual,
    "intel": partial(small, "intel", "powersave", "balance_performance", amd=False),
    "amd": partial(small, "amd", "powersave", "balance_performance", amd=True),
    "amd-server": partial(small, "amd-server", "performance", "performance", amd=True),
}
"""A server's governor under amd-pstate is `performance` by default (amd_pstate_epp_cpu_init)."""
