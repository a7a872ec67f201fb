"""The machine the agent runs on: its name, its boot, its cores and its clock."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path


class HostClock:
    """Seconds since the machine was started, suspended time included."""

    def monotonic(self) -> float:
        """Return seconds on the boot clock."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(max(0.0, seconds))


def suspended_s() -> float:
    """Return for how many seconds the machine was suspended since it was started."""

    def apart() -> float:
        awake_s = time.monotonic()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - awake_s

    return min(apart() for _ in range(3))  # this process may be made to wait between the two clocks


@dataclass(frozen=True, slots=True)
class Host:
    """What distinguishes one machine, and one boot of it, from another.

    `cores` are all of the machine's, not only those this process may use: /proc/stat counts all.
    """

    name: str
    boot: str
    cores: int

    @property
    def agent(self) -> str:
        """What the agent of this machine is called."""
        return f"agent@{self.name}"

    @classmethod
    def here(cls, root: Path = Path("/"), name: str = "") -> Host:
        """Return this machine, by another name where one is given.

        The boot id is empty where the kernel tells none.
        """
        try:
            boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = ""
        return cls(name or platform.node() or "localhost", boot, os.cpu_count() or 1)
