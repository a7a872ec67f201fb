"""The machine on which the agent runs: its name, boot id, number of cores and clock."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path


class HostClock:
    """A clock of the seconds since boot, including the time while the machine was suspended."""

    def monotonic(self) -> float:
        """Return the seconds since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds; return at once if it is negative."""
        time.sleep(max(0.0, seconds))


def suspended_s() -> float:
    """Return the seconds for which the machine was suspended since boot."""

    def apart() -> float:
        """Return the difference between the clocks with and without the suspended time, in seconds."""
        awake_s = time.monotonic()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - awake_s

    return min(apart() for _ in range(3))  # the process may be preempted between the two reads


@dataclass(frozen=True, slots=True)
class Host:
    """The identity of a machine and of its current boot.

    `cores` counts all cores of the machine, not only those that this process may use, because
    /proc/stat sums over all of them.
    """

    name: str
    boot: str
    cores: int

    @property
    def agent(self) -> str:
        """The name of this machine's agent."""
        return f"agent@{self.name}"

    @classmethod
    def here(cls, root: Path = Path("/"), name: str = "") -> Host:
        """Return this machine, under the given name if it is not empty.

        The boot id is empty if the kernel does not report it.
        """
        try:
            boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = ""
        return cls(name or platform.node() or "localhost", boot, os.cpu_count() or 1)
