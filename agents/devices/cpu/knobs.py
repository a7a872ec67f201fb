"""What root writes to the CPUs of a host: clock ceilings, boost, governors, uncore clock, power limits.

Sources: the kernel's Documentation/admin-guide/pm (cpufreq.rst, intel_pstate.rst, amd-pstate.rst,
intel_uncore_frequency_scaling.rst) and Documentation/power/powercap/powercap.rst; drivers/cpufreq/cpufreq.c
(cpufreq_boost_set_sw) for a ceiling that is lost when boost is set. Ours: all domains of a
kind are set alike, and both of RAPL's windows, as the long one alone lets bursts through; power limits go
down to a quarter of the package's rated power. `status` of intel_pstate is never written: it resets all
else. drivers/powercap/intel_rapl_common.c: a domain that the BIOS has locked tells `enabled` 0 and answers
EACCES to a write.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.actuator import sysfs
from agents.actuator.driver import Value
from agents.actuator.sysfs import FileKnob, content, numbers, words

BOOST, GOVERNOR, PREFERENCE = "cpu.boost", "cpu.governor", "cpu.epp"
UNCORE, POWER = "cpu.uncore_mhz", "cpu.package_power_limit_w"
KNOBS = (sysfs.CPU_CLOCK, BOOST, GOVERNOR, PREFERENCE, UNCORE, POWER)
CHOICES = {
    GOVERNOR: ("scaling_governor", "scaling_available_governors"),
    PREFERENCE: ("energy_performance_preference", "energy_performance_available_preferences"),
}
"""Knob to the file of a policy that has it, and the file with its words."""
BOOSTS = {f"{sysfs.CPUS}/cpufreq/boost": "1", f"{sysfs.CPUS}/intel_pstate/no_turbo": "0"}
"""File to what it says while clocks above the nominal one are allowed; no host has both."""
DIES = "sys/devices/system/cpu/intel_uncore_frequency/package_*_die_*"
ZONES, ZONE = "sys/class/powercap/intel-rapl*:*", re.compile(r"intel-rapl(-mmio)?:\d+")
"""Packages by MSR and by MMIO, of which the lower binds; constraint 0 is the long window, 1 the short."""
UW, LEAST_W, UNLIMITED_W, ABSURD_W, MOST_VALUES = 1_000_000, 40, 4095, 1 << 15, 900
"""4,095 W is a RAPL register's all ones: no limit. More than 15 bits of watts is none that hardware has."""


@dataclass(slots=True)
class BoostKnob(FileKnob):
    """Whether clocks above the nominal one are allowed; `on` is what the file says then.

    The tops of the `clocks` change with it, and some kernels set every ceiling to its top then: the
    requested ceiling, or was lower than its top, is written again.
    """

    on: str = "1"
    clocks: Sequence[FileKnob] = ()

    def read(self) -> Value | None:
        """Return `on` or `off`."""
        return "on" if content(self.files[0]) == self.on else "off"

    def write(self, value: Value | None) -> None:
        """Allow or forbid boost; None allows it."""
        tops = [(knob, knob.files[0].with_name(sysfs.TOP)) for knob in self.clocks]
        lower = [k for k, top in tops if k.requested or numbers(k.files[0]) < numbers(top)]
        before = [(knob, knob.read()) for knob in lower]
        FileKnob.write(self, self.on if value in ("on", None) else str(1 - int(self.on)))
        for knob, ceiling in before:
            if knob.read() != ceiling:
                knob.write(ceiling)


def discover(path: str = "/") -> list[sysfs.FileKnobs]:
    """Return the CPUs of the host at `path`; a Jetson's are its own driver's. Raises ActuationError."""
    root = Path(path)
    tree = root / "proc/device-tree/compatible"
    if tree.exists() and "nvidia,tegra" in content(tree):
        return []
    clocks = sysfs.cpu_clocks(root)
    choices = {knob: _choice(root, *files) for knob, files in CHOICES.items()}
    for file, on in BOOSTS.items():
        if numbers(root / file):
            alike = [*clocks.values()]
            choices[BOOST] = BoostKnob([root / file], ("off", "on"), on=on, clocks=alike)
    all_knobs = {**clocks, **choices, UNCORE: _uncore(root), POWER: _power(root)}
    return sysfs.devices("cpu", "CPU", KNOBS, all_knobs, probed=(POWER,))


def _choice(root: Path, file: str, plural: str) -> FileKnob:
    """Return a knob over the policies that tell its words: one without a CPU at work does not."""
    choices = {f: sysfs.words(f.with_name(plural)) for f in root.glob(f"{sysfs.POLICIES}/{file}")}
    files = sorted(policy for policy, offered in choices.items() if offered)
    common = set.intersection(*(choices[policy] for policy in files)) if files else set()
    return FileKnob(files, tuple(sorted(common)))


def _uncore(root: Path) -> FileKnob:
    ends = numbers(*root.glob(f"{DIES}/initial_m[ai][nx]_freq_khz"))
    files = sorted(root.glob(f"{DIES}/max_freq_khz"))
    return sysfs.ceiling(files, sysfs.span(ends), "min_freq_khz", sysfs.KHZ)


def _power(root: Path) -> FileKnob | str:
    """Return RAPL's limits up to the greatest that is reported or in force, or why there are none.

    `max_power_uw` is the package's rated power, which limits in force exceed; the range begins at a quarter
    of it. A limit that is all ones is none.
    """
    zones = [z for z in root.glob(ZONES) if ZONE.fullmatch(z.name) and _is_package(z)]
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
    steps = sysfs.span([least, most], 1 + (most - least) // MOST_VALUES) if most > least else []
    return FileKnob(limits, tuple(steps), UW)


def _is_package(zone: Path) -> bool:
    return any(word.startswith("package") for word in words(zone / "name"))
