"""What root writes to the CPUs of a host: clock ceilings, boost, governors, uncore clock, power limits.

Sources: the kernel's Documentation/admin-guide/pm (cpufreq.rst, intel_pstate.rst, amd-pstate.rst,
intel_uncore_frequency_scaling.rst) and Documentation/power/powercap/powercap.rst; drivers/cpufreq/cpufreq.c
(cpufreq_boost_set_sw) for a ceiling that is lost when boost is set. Ours: all domains of a
kind are set alike, and both of RAPL's windows, as the long one alone lets bursts through; power limits go
down to a quarter of the greatest. `status` of intel_pstate is never written: it resets all else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.actuator import sysfs
from agents.actuator.driver import Value
from agents.actuator.sysfs import FileKnob, content, numbers

BOOST, BOOST_VALUES = "cpu.boost", ("off", "on")
GOVERNOR, PREFERENCE = "cpu.governor", "cpu.epp"
UNCORE, POWER = "cpu.uncore_mhz", "cpu.package_power_limit_w"
KNOBS = (sysfs.CPU_CLOCK, BOOST, GOVERNOR, PREFERENCE, UNCORE, POWER)
CHOICES = {
    GOVERNOR: ("scaling_governor", "scaling_available_governors"),
    PREFERENCE: ("energy_performance_preference", "energy_performance_available_preferences"),
}
"""Knob to the file of a policy that has it, and the file with its words."""
BOOSTS = {
    "sys/devices/system/cpu/cpufreq/boost": "1",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
}
"""File to what it says while clocks above the nominal one are allowed; no host has both."""
DIES = "sys/devices/system/cpu/intel_uncore_frequency/package_*_die_*"
ZONES, UW = "sys/class/powercap/intel-rapl:?", 1_000_000
"""Packages; of a package's constraints, 0 is the long window and 1 the short one."""


@dataclass(slots=True)
class BoostKnob(FileKnob):
    """Whether clocks above the nominal one are allowed; `on` is what the file says then.

    The tops of the `clocks` change with it, and some kernels set every ceiling to its top then: what was
    asked of a ceiling, or was lower than its top, is written again.
    """

    on: str = "1"
    clocks: Sequence[FileKnob] = ()

    def read(self) -> Value | None:
        """Return `on` or `off`."""
        return "on" if content(self.files[0]) == self.on else "off"

    def write(self, value: Value | None) -> None:
        """Allow or forbid boost; None allows it."""
        lower = [knob for knob in self.clocks if knob.asked or is_lower(knob)]
        before = [(knob, knob.read()) for knob in lower]
        FileKnob.write(self, self.on if value in ("on", None) else str(1 - int(self.on)))
        for knob, ceiling in before:
            if knob.read() != ceiling:
                knob.write(ceiling)


def is_lower(knob: FileKnob) -> bool:
    """Return whether a ceiling is under its top somewhere."""
    pairs = zip(knob.files, knob.tops, strict=True)
    return any(numbers(file) < numbers(top) for file, top in pairs)


def boost_file(root: Path) -> tuple[Path, str] | None:
    """Return the file that allows boost, and what it says then; None where there is none."""
    there = ((root / file, on) for file, on in BOOSTS.items() if numbers(root / file))
    return next(there, None)


def discover(path: str = "/") -> list[sysfs.FileKnobs]:
    """Return the CPUs of the host at `path`; a Jetson's are its own driver's. Raises ActuationError."""
    root = Path(path)
    tree = root / "proc/device-tree/compatible"
    if tree.exists() and "nvidia,tegra" in content(tree):
        return []
    clocks = sysfs.cpu_clocks(root)
    choices = {knob: _choice(root, *files) for knob, files in CHOICES.items()}
    if found := boost_file(root):
        choices[BOOST] = BoostKnob([found[0]], BOOST_VALUES, on=found[1], clocks=[*clocks.values()])
    all_knobs = {**clocks, **choices, UNCORE: _uncore(root), POWER: _power(root)}
    offered = {name: knob for name, knob in all_knobs.items() if knob.values}
    return [sysfs.FileKnobs("cpu", "CPU", (*KNOBS, *offered), offered)] if offered else []


def _choice(root: Path, file: str, words: str) -> FileKnob:
    """Return a knob over the policies that tell its words: one without a CPU at work does not."""
    found = {f: sysfs.words(f.with_name(words)) for f in root.glob(f"{sysfs.POLICIES}/{file}")}
    files = sorted(policy for policy, offered in found.items() if offered)
    common = set.intersection(*(found[policy] for policy in files)) if files else set()
    return FileKnob(files, tuple(sorted(common)))


def _uncore(root: Path) -> FileKnob:
    ends = numbers(
        *(file for end in ("min", "max") for file in root.glob(f"{DIES}/initial_{end}_freq_khz"))
    )
    files = sorted(root.glob(f"{DIES}/max_freq_khz"))
    return sysfs.ceiling(files, sysfs.span(ends), "min_freq_khz", sysfs.KHZ)


def _power(root: Path) -> FileKnob:
    """Return RAPL's limits; the greatest is the package's own, or what is set where none is told."""
    zones = [z for z in sorted(root.glob(ZONES)) if content(z / "name").startswith("package")]
    files = [z / f"constraint_{n}_power_limit_uw" for n in (0, 1) for z in zones]
    limits = [file for file in files if file.exists()]
    tops = numbers(*(zone / "constraint_0_max_power_uw" for zone in zones))
    most = (max(tops, default=0) or max(numbers(*limits), default=0)) // UW
    return FileKnob(limits, tuple(range(most // 4, most + 1)) if most else (), UW)
