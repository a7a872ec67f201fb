"""This host's CPU for an agent: set through the actuator's socket, measured directly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from agents.actuator.kernel_text import numbers
from agents.actuator.sysfs import CPU_CLOCK, KHZ, POLICIES, cpu_clocks
from agents.actuator_client.client import RemoteKnobs, actuator_socket, reached
from agents.actuator_client.offered import Choose, kind_of, thinned
from agents.devices.cpu.energy import find_energy
from agents.devices.cpu.knobs import BOOST, KNOBS, POWER, UNCORE, ZONES
from agents.host.machine import HostClock, contained, model_name, text_of, virtual
from agents.target.host_meter import Ceiling, HostMeter
from agents.target.joules import in_background
from agents.target.side import HOST_CPU, NothingToSet, Side
from tuner.core import InvalidInput, Metric, Role, Scope, Space, Value

CPU = "cpu"
"""The actuator's name for it."""
THROTTLES = "sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count"
ROLES = {
    CPU_CLOCK: Role.CPU_CLOCK,
    BOOST: Role.BOOST,
    UNCORE: Role.MEMORY_CLOCK,
    POWER: Role.POWER_LIMIT,
}
MARGINS = {
    "acpi-cpufreq": 1.05,
    "intel_pstate": 1.1,
    "intel_cpufreq": 1.1,
    "amd-pstate": 1.1,
    "amd-pstate-epp": 1.1,
}
"""Largest ratio of a measured clock to its ceiling in force, by driver. x86 measures the mean since the
last tick (APERF over MPERF); intel_pstate and amd-pstate round a ceiling up to a step."""
WIDEST = 1.2
"""The same ratio for other drivers, as cppc_cpufreq measures over microseconds. Both are our choice."""
MOST_RUNGS = 12
"""Largest number of steps of a clock or a power limit: closer neighbours differ by less than noise."""
SETTLE_S = 0.5


NO_CLOCKS = "the kernel offers no clock limits"


def no_clocks(root: Path) -> str:
    """Return the next step if no clock can be set."""
    if virtual(root):
        return "the host of a virtual machine controls its clocks"
    if contained(root):
        return "a container sees what its runtime shows: set clocks on the host"
    return "enable a cpufreq driver in the kernel or in the BIOS"


def open_cpu(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open this host's CPU, with its /proc and /sys below `root`.

    Raises:
        InvalidInput: the device's name has more than `cpu`.
    """
    if rest:
        raise InvalidInput(f"the device cpu has no option {rest!r}", hint="write cpu")
    clock = HostClock()
    energy = find_energy(root, clock, in_background)
    metrics = tuple(Metric(name, scope=Scope.MODULE) for name in ("energy_j", "power_w"))
    unmetered = {} if energy.open else {metric.name: energy.why_not for metric in metrics}
    remote, cannot = reached(actuator_socket(root), CPU, clock, KNOBS, worth_trying(root), ROLES)
    if remote is None and (virtual(root) or contained(root)) and not any(root.glob(POLICIES)):
        why = f"measured only: {NO_CLOCKS}; {no_clocks(root)}"  # no actuator can change that
        cannot = dict.fromkeys(KNOBS, why)
    if remote:
        remote.caps.multiply(POWER, packages(root))
    return Side(
        name=CPU,
        kind="cpu",
        board=model_name(text_of(root / "proc/cpuinfo")),
        version=text_of(root / "proc/sys/kernel/osrelease").strip() or "unknown",
        space=remote.space if remote else Space(()),
        metrics=metrics if energy.open else (),
        actuator=remote or NothingToSet(),
        meter=HostMeter(
            stat=root / "proc/stat",
            joules=energy.open,
            watch=lambda: Throttles(sorted(root.glob(THROTTLES)), remote).since,
            ceilings=Ceilings(root, remote).ours if remote else lambda: (),
            clock=clock,
        ),
        settle_s=SETTLE_S,
        cannot={**cannot, **unmetered},
        source=energy.source,
        energy_of=frozenset({HOST_CPU}),
    )


class Ceilings:
    """The ceilings that we have set on a CPU's clocks and that boost does not exceed.

    A ceiling at the greatest value of the driver's table, or at the policy's maximum, may be exceeded by
    boost and is left out, unless we have set boost off. Then the nominal clock is a ceiling, too, if the
    kernel reports it.
    """

    def __init__(self, root: Path, remote: RemoteKnobs) -> None:
        self._remote = remote
        self._knobs = cpu_clocks(root)

    def ours(self) -> Iterator[Ceiling]:
        """Yield the present ceilings, in kHz."""
        setting, defaults = self._remote.applied, self._remote.space.default
        boosts = setting.get(BOOST) in (None, "on", defaults.get(BOOST))
        for name, knob in self._knobs.items():
            requested = setting.get(name)
            khz = (
                inf
                if requested is None or requested == defaults.get(name)
                else float(requested) * KHZ
            )
            for file in knob.files:
                rungs = numbers(file.with_name("scaling_available_frequencies"))
                tops = [*numbers(file.with_name("cpuinfo_max_freq")), *rungs[-1:]]
                top = min(tops, default=inf)
                nominal = min(numbers(file.with_name("base_frequency")), default=top)
                most = khz if boosts else min(khz, nominal)
                if most < inf and not (boosts and khz >= top):
                    margin = MARGINS.get(text_of(file.with_name("scaling_driver")).strip(), WIDEST)
                    yield Ceiling(file.with_name("scaling_cur_freq"), most, most * margin)


class Throttles:
    """Throttling of a CPU: the kernel's counts of overheating, and the caps that the actuator sees."""

    def __init__(self, counts: Sequence[Path], remote: RemoteKnobs | None = None) -> None:
        self._counts, self._remote = counts, remote
        self._last = self._total()

    def since(self) -> bool:
        """Return whether any CPU was throttled since the last call, or is capped now."""
        before, self._last = self._last, self._total()
        return self._last > before or bool(self._remote and self._remote.throttled)

    def _total(self) -> int:
        """Return the sum of the kernel's throttle counts."""
        return sum(number for count in self._counts for number in numbers(count))


def packages(root: Path) -> int:
    """Return the number of CPU packages with a power limit; a package's MSR and MMIO zones count once."""
    names = {text_of(zone / "name").strip() for zone in root.glob(ZONES)}
    return max(1, sum(name.startswith("package") for name in names))


def worth_trying(root: Path) -> Choose:
    """Return the filter of granted values for trials on the CPU at `root`.

    It leaves out clocks below AMD's lowest efficient one and above the BIOS's limit.
    """
    floors = _mhz(root, "amd_pstate_lowest_nonlinear_freq")
    tops = _mhz(root, "bios_limit")

    def choose(knob: str, values: Sequence[Value], original: Value) -> Sequence[Value]:
        if isinstance(values[0], str):
            return values
        if kind_of(knob) == CPU_CLOCK:
            low, high = max(floors, default=0.0), min(tops, default=inf)
            values = [value for value in values if low <= float(value) <= high] or values
        return thinned(values, MOST_RUNGS)

    return choose


def _mhz(root: Path, file: str) -> list[float]:
    """Return the clocks in a file of every policy, in MHz."""
    return [khz / KHZ for path in root.glob(f"{POLICIES}/{file}") for khz in numbers(path)]
