"""The knobs that root writes for a host's CPUs: clock ceilings, boost, governors, uncore, power limits.

Sources: the kernel's Documentation/admin-guide/pm (cpufreq.rst, intel_pstate.rst, amd-pstate.rst,
intel_uncore_frequency_scaling.rst) and Documentation/power/powercap/powercap.rst; drivers/cpufreq/cpufreq.c
(cpufreq_boost_set_sw) for a ceiling that is lost when boost is set, and (cpufreq_boost_trigger_state) for
the boost of each policy, which follows; intel_pstate.c (store_no_turbo) for a minimum that boost off
lowers; kernel/sched/cpufreq_schedutil.c and cpufreq_governor.c for a governor's numbers, which are lost
with its last policy, cpufreq_userspace.c for its clock; drivers/cpufreq/amd-pstate.c for a preference that
the governor `performance` sets and leaves behind; drivers/powercap/intel_rapl_common.c for a domain locked
by the BIOS: its `enabled` is 0 and a write fails with EACCES. Ours: all domains of a kind are set alike,
and both of RAPL's windows, because the long one alone lets bursts through; power limits go down to a
quarter of the package's rated power. `status` of intel_pstate is never written, because it resets all else.
"""

import re
from pathlib import Path

from agents.actuator import kernel_text, sysfs
from agents.actuator.driver import Value
from agents.actuator.kernel_text import content, numbers, words
from agents.actuator.sysfs import FileKnob

BOOST, GOVERNOR, PREFERENCE = "cpu.boost", "cpu.governor", "cpu.epp"
BOOST_FILES, TUNABLES = "cpu.boost_files", "cpu.governor_tunables"
"""Two knobs that are never offered: the files that follow boost, and those that follow a governor."""
TUNED = ("ondemand", "conservative", "schedutil")
"""The governors with numbers to tune: a folder for all policies, or one in each."""
UNCORE, POWER = "cpu.uncore_mhz", "cpu.package_power_limit_w"
KNOBS = (sysfs.CPU_CLOCK, BOOST, GOVERNOR, PREFERENCE, UNCORE, POWER)
CHOICES = {
    GOVERNOR: ("scaling_governor", "scaling_available_governors"),
    PREFERENCE: ("energy_performance_preference", "energy_performance_available_preferences"),
}
"""Knob to its file in a policy, and the file that lists its words."""
BOOSTS = {f"{sysfs.CPUS}/cpufreq/boost": "1", f"{sysfs.CPUS}/intel_pstate/no_turbo": "0"}
"""File to its content while clocks above the nominal one are allowed; no host has both files."""
LEAST_SHARE = f"{sysfs.CPUS}/intel_pstate/min_perf_pct"
"""The kernel lowers this file when turbo is turned off, and does not raise it when it is turned on."""
ALONE = CHOICES[PREFERENCE]
AMD = {"performance", "balance_performance", "balance_power", "power"}
"""All preferences of amd-pstate: `energy_perf_strings` of drivers/cpufreq/amd-pstate.c."""
DIES = tuple(
    f"{sysfs.CPUS}/intel_uncore_frequency/{of}" for of in ("uncore[0-9]*", "package_*_die_*")
)
"""Clusters, and dies. Where a package has clusters, its own folder shows the greatest clock of them and
writes all: it could not be restored (uncore-frequency-tpmi.c; TuneD pull request 590)."""
ZONES, ZONE = "sys/class/powercap/intel-rapl*:*", re.compile(r"intel-rapl(-mmio)?:\d+")
"""Packages by MSR and by MMIO; the lower limit binds. Constraint 0 is the long window, 1 the short one."""
UW, LEAST_W, UNLIMITED_W, ABSURD_W, MOST_VALUES = 1_000_000, 40, 4095, 1 << 15, 900
"""4,095 W is a RAPL register of ones: no limit. No hardware has a limit of more than 15 bits in watts."""


def discover(path: str = "/") -> list[sysfs.FileKnobs]:
    """Return the CPUs of the host at `path`; empty on a Jetson. Raises ActuationError."""
    root = Path(path)
    tree = root / "proc/device-tree/compatible"
    if tree.exists() and "nvidia,tegra" in content(tree):
        return []
    devices = sysfs.devices("cpu", "CPU", KNOBS, root, lambda: _find(root))
    for device in devices:
        clocks = [name for name in device.offered if name.startswith(sysfs.CPU_CLOCK)]
        device.moves = {BOOST: [*clocks, BOOST_FILES], GOVERNOR: [PREFERENCE, TUNABLES]}
    return devices


def _find(root: Path) -> dict[str, FileKnob | str]:
    """Return the present knobs, or the reason why one is missing."""
    knobs: dict[str, FileKnob | str] = {**sysfs.cpu_clocks(root)}
    knobs |= {knob: _choice(root, *files) for knob, files in CHOICES.items()}
    for file, on in BOOSTS.items():
        if numbers(root / file):
            texts: dict[Value, str] = {"on": on, "off": str(1 - int(on))}
            knobs[BOOST] = FileKnob([root / file], ("off", "on"), texts=texts)
    follow = [*root.glob(f"{sysfs.POLICIES}/boost"), *root.glob(LEAST_SHARE)]
    knobs[BOOST_FILES] = FileKnob(sorted(follow), (), follows=True)
    places = (
        f"{at}/{name}/*" for at in (f"{sysfs.CPUS}/cpufreq", sysfs.POLICIES) for name in TUNED
    )
    numbers_ = [
        file for place in places for file in root.glob(place) if file.stat().st_mode & 0o200
    ]
    numbers_ += [f for f in root.glob(f"{sysfs.POLICIES}/scaling_setspeed") if numbers(f)]
    knobs[TUNABLES] = FileKnob(numbers_, (), follows=True)
    return {**knobs, UNCORE: _uncore(root), POWER: _power(root)}


def _choice(root: Path, file: str, plural: str) -> FileKnob:
    """Return a knob over the policies that list its words; the policy of an offline CPU does not.

    The preference `default` is left out, as its files show another word for it. Under the governor
    `performance` amd-pstate lists that preference alone, although it has the others.
    """
    choices = {
        f: kernel_text.words(f.with_name(plural)) for f in root.glob(f"{sysfs.POLICIES}/{file}")
    }
    choices = {
        f: AMD if plural in ALONE and w == {"performance"} else w for f, w in choices.items()
    }
    files = sorted(policy for policy, offered in choices.items() if offered)
    common = set.intersection(*(choices[policy] for policy in files)) if files else set()
    return FileKnob(files, tuple(sorted(common - {"default"})))


def _uncore(root: Path) -> FileKnob:
    """Return the ceiling of the uncore clock over all clusters, else over all dies."""
    dies = next((of for of in DIES if any(root.glob(of))), DIES[-1])
    ends = numbers(*root.glob(f"{dies}/initial_m[ai][nx]_freq_khz"))
    files = sorted(root.glob(f"{dies}/max_freq_khz"))
    return sysfs.ceiling(files, kernel_text.span(ends), "min_freq_khz", sysfs.KHZ)


def _power(root: Path) -> FileKnob | str:
    """Return RAPL's limits up to the greatest one reported or in force, or the reason why there are none.

    Limits in force may exceed `max_power_uw`, the package's rated power; the range begins at a quarter of
    it. A limit of all ones means no limit.
    """
    there = [z for z in root.glob(ZONES) if ZONE.fullmatch(z.name)]
    zones = [z for z in there if any(word.startswith("package") for word in words(z / "name"))]
    zones.sort(key=lambda z: (z.name.partition(":")[0], int(z.name.partition(":")[2])))
    names = {z: " ".join(words(z / "name")) for z in zones}
    zones = [z for z in zones if words(z / "enabled") != {"0"}]
    if off := {*names.values()} - {names[z] for z in zones}:
        return f"{', '.join(sorted(off))}: power limits are disabled, or locked by the BIOS"
    files = [z / f"constraint_{n}_power_limit_uw" for n in (0, 1) for z in zones]
    limits = [file for file in files if file.exists()]
    watts = [n // UW for file in limits for n in numbers(file) if n // UW < ABSURD_W]
    rated = [n // UW for z in zones for n in numbers(z / "constraint_0_max_power_uw")]
    plausible = [w for w in rated if 0 < w < UNLIMITED_W]
    least = min(plausible or [w for w in watts if 0 < w < UNLIMITED_W], default=LEAST_W) // 4
    most = max([*plausible, *watts], default=0)
    steps = (
        kernel_text.span([least, most], 1 + (most - least) // MOST_VALUES) if most > least else []
    )
    return FileKnob(limits, tuple(steps), UW)
