"""What root writes to the CPUs of a host: clock ceilings, governors, the uncore's clock, power limits.

Sources: the kernel's Documentation/admin-guide/pm (cpufreq.rst, intel_pstate.rst, amd-pstate.rst,
intel_uncore_frequency_scaling.rst) and Documentation/power/powercap/powercap.rst. Ours: all domains of a
kind are set alike, and both of RAPL's windows, as the long one alone lets bursts through; power limits go
down to a quarter of the greatest. `status` of intel_pstate is never written: it resets all else.
"""

from pathlib import Path

from agents.actuator import sysfs
from agents.actuator.sysfs import FileKnob, content, numbers

GOVERNOR, PREFERENCE = "cpu.governor", "cpu.epp"
UNCORE, POWER = "cpu.uncore_mhz", "cpu.package_power_limit_w"
KNOBS = (sysfs.CPU_CLOCK, GOVERNOR, PREFERENCE, UNCORE, POWER)
CHOICES = {
    GOVERNOR: ("scaling_governor", "scaling_available_governors"),
    PREFERENCE: ("energy_performance_preference", "energy_performance_available_preferences"),
}
"""Knob to the file of a policy that has it, and the file with its words."""
DIES = "sys/devices/system/cpu/intel_uncore_frequency/package_*_die_*"
ZONES, UW = "sys/class/powercap/intel-rapl:?", 1_000_000
"""Packages; of a package's constraints, 0 is the long window and 1 the short one."""


def discover(path: str = "/") -> list[sysfs.FileKnobs]:
    """Return the CPUs of the host at `path`; a Jetson's are its own driver's. Raises ActuationError."""
    root = Path(path)
    tree = root / "proc/device-tree/compatible"
    if tree.exists() and "nvidia,tegra" in content(tree):
        return []
    choices = {knob: _choice(root, *files) for knob, files in CHOICES.items()}
    all_knobs = {**sysfs.cpu_clocks(root), **choices, UNCORE: _uncore(root), POWER: _power(root)}
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
