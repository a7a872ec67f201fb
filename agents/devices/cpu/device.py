"""This host's CPU as an agent opens it: set through the actuator's socket, measured directly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.actuator.client import Choose, RemoteKnobs, actuator_socket, kind_of, reached
from agents.devices.cpu.energy import find_energy
from agents.devices.cpu.knobs import KNOBS, POWER, UNCORE
from agents.host.host import HostClock
from agents.host.processor import model_name, text_of
from agents.target.host_meter import HostMeter
from agents.target.joules import in_background
from agents.target.side import HOST_CPU, NothingToSet, Side
from tuner.core import InvalidInput, Metric, Role, Scope, Space, Value

CPU = "cpu"
"""What the actuator calls it."""
POLICY = "sys/devices/system/cpu/cpufreq/policy*"
THROTTLES = "sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count"
ROLES = {KNOBS[0]: Role.CPU_CLOCK, UNCORE: Role.MEMORY_CLOCK, POWER: Role.POWER_LIMIT}
MOST_RUNGS = 12
"""A clock is offered in at most so many steps, a power limit too: neighbours differ by less than noise."""
SETTLE_S = 0.5


def open_cpu(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open this host's CPU; `root` is where its /proc and /sys are.

    Raises:
        InvalidInput: something follows `cpu` in the device's name.
    """
    if rest:
        raise InvalidInput(f"the device cpu takes no {rest!r}", hint="write just cpu")
    clock = HostClock()
    energy = find_energy(root, clock, in_background)
    metrics = tuple(Metric(name, scope=Scope.MODULE) for name in ("energy_j", "power_w"))
    unmetered = {} if energy.open else {metric.name: energy.why_not for metric in metrics}
    remote, cannot = reached(actuator_socket(root), CPU, clock, KNOBS, worth_trying(root), ROLES)
    policies = sorted(root.glob(POLICY))
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
            clocks=[(p / "scaling_cur_freq", p / "scaling_max_freq") for p in policies],
            clock=clock,
        ),
        settle_s=SETTLE_S,
        cannot={**cannot, **unmetered},
        source=energy.source,
        energy_of=frozenset({HOST_CPU}),
    )


class Throttles:
    """The kernel's counts of how often a CPU was too hot, and the caps that the actuator sees."""

    def __init__(self, counts: Sequence[Path], remote: RemoteKnobs | None = None) -> None:
        self._counts, self._remote = counts, remote
        self._last = self._total()

    def since(self) -> bool:
        """Return whether any CPU was throttled since this was last asked, or is capped now."""
        before, self._last = self._last, self._total()
        return self._last > before or bool(self._remote and self._remote.throttled)

    def _total(self) -> int:
        texts = (text_of(count).strip() for count in self._counts)
        return sum(int(text) for text in texts if text.isdecimal())


def worth_trying(root: Path) -> Choose:
    """Return which of the granted values are worth a trial on the CPU at `root`.

    Neither under the clock that AMD calls its least efficient nor above what the BIOS allows.
    """
    floors = _mhz(root, "amd_pstate_lowest_nonlinear_freq")
    tops = _mhz(root, "bios_limit")

    def choose(knob: str, values: Sequence[Value], found: Value) -> Sequence[Value]:
        if isinstance(values[0], str):
            return values
        numbers = [float(value) for value in values]
        if kind_of(knob) == KNOBS[0]:
            low, high = max(floors, default=0.0), min(tops, default=float("inf"))
            numbers = [n for n in numbers if low <= n <= high] or numbers
        kept = thinned(numbers, MOST_RUNGS)
        return [value for value in values if float(value) in kept]

    return choose


def thinned(numbers: Sequence[float], most: int) -> set[float]:
    """Return at most so many of these numbers, both ends among them, as evenly spread as they are."""
    if len(numbers) <= most:
        return set(numbers)
    step = (len(numbers) - 1) / (most - 1)
    return {numbers[round(k * step)] for k in range(most)}


def _mhz(root: Path, file: str) -> list[float]:
    texts = (text_of(path).strip() for path in root.glob(f"{POLICY}/{file}"))
    return [int(text) / 1000.0 for text in texts if text.isdecimal()]
