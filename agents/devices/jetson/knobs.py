"""The knobs that root writes on a Jetson board: ceilings of GPU and CPU clocks, and a lock of the memory's.

Sources: the kernel's drivers/devfreq/devfreq.c (a limit beyond the opposite one is refused), NVIDIA's
Jetson Linux guide and jetson_clocks for the files; users report that values outside the tables are
rounded. Ours: only values of the live tables are written; a lock is read back, and reported as unset while
it is off. Left out: Thor's memory clock, which has no file at run time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.actuator import kernel_text, sysfs
from agents.actuator.driver import Value
from agents.actuator.kernel_text import content, numbers
from agents.actuator.sysfs import FileKnob
from tuner.errors import ActuationError, KnobRefused

GPU, MEMORY = "gpu.clock_mhz", "gpu.mem_clock_mhz"
KNOBS = (GPU, MEMORY, sysfs.CPU_CLOCK)
CHIPS = ("gp10b", "gv11b", "ga10b", "gb10b", "gpu-gpc", "gpu")
"""Parts of the name of a GPU's devfreq node; Thor has another node, for video."""
NODES = ("sys/class/devfreq/*", "sys/devices/platform/bus@0/**/devfreq/*")
"""The first has links to the second; a root without links has the second only."""
BPMP = "sys/kernel/debug/bpmp/debug"
HZ = 1_000_000
LATE_S = 10.0
"""Seconds that the GPU's node may take to appear if we start during boot."""


@dataclass(slots=True)
class MemoryLock(FileKnob):
    """The memory's clock, None if the firmware chooses it. One entry for the lock and the file `rate`."""

    @property
    def names(self) -> list[str]:
        """Its only entry."""
        return [MEMORY]

    def tell(self, name: str) -> tuple[Value | None, int | None]:
        """Return the locked clock in MHz, None without a lock."""
        return self.read(), None

    def plan(self, value: Value | None) -> dict[str, Any]:
        """Return the entry to write for a value."""
        return {MEMORY: value}

    def read(self) -> Value | None:
        """Return the locked clock in MHz, None without a lock."""
        return FileKnob.read(self) if self.switch.read() != "0" else None

    def put(self, name: str, value: Value | None) -> None:
        """Lock the clock, or release it for None; a refused one changes nothing. Raises ActuationError."""
        was = value and self.switch.read()
        self.switch.write("0" if value is None else "1")
        if value is not None:
            try:
                FileKnob.put(self, str(self.files[0]), round(float(value) * HZ))
            except KnobRefused:
                self.switch.write(was)
                raise
        if self.read() != value:
            raise ActuationError(f"the memory's clock is {self.read()} MHz, not {value}")

    @property
    def switch(self) -> FileKnob:
        """The file that turns the lock on and off."""
        return FileKnob([self.files[0].with_name("mrq_rate_locked")], ())


def discover(path: str = "/") -> list[sysfs.FileKnobs]:
    """Return the board at `path`, an empty list if it is not a Jetson. Raises ActuationError."""
    root = Path(path)
    tree = root / "proc/device-tree"
    if not tree.exists() or "nvidia,tegra" not in content(tree / "compatible"):
        return []
    until = time.monotonic() + LATE_S
    while not (nodes := gpus(root)) and time.monotonic() < until:
        time.sleep(0.1)
    board = content(tree / "model") if (tree / "model").exists() else "Jetson"
    return sysfs.devices("jetson", board, KNOBS, root, lambda: _find(root, nodes[:1]))


def _find(root: Path, nodes: Sequence[Path]) -> dict[str, FileKnob | str]:
    """Return the present knobs, by name."""
    knobs: dict[str, FileKnob | str] = {**sysfs.cpu_clocks(root)}
    for node in nodes:
        ladder = numbers(node / "available_frequencies")
        knobs[GPU] = sysfs.ceiling([node / "max_freq"], ladder, "min_freq", HZ)
    most = max(numbers(root / BPMP / "clk/emc/max_rate"), default=0)
    rates = [khz * sysfs.KHZ for khz in numbers(root / BPMP / "emc/possible_rates")]
    clocks = tuple(kernel_text.scaled(rate, HZ) for rate in rates if rate <= most)
    if clocks:
        knobs[MEMORY] = MemoryLock([root / BPMP / "clk/emc/rate"], clocks, HZ)
    return knobs


def gpus(root: Path) -> list[Path]:
    """Return the GPU's devfreq nodes, the computing one first; empty if there are none."""
    for pattern in NODES:
        nodes = sorted(root.glob(pattern))
        if matches := [node for chip in CHIPS for node in nodes if chip in node.name]:
            return matches
    return []
