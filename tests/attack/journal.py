"""A device left altered by a killed root process, and its restore."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.actuator_client.client import open_remote
from tests.builders import Time
from tests.unit.agents.actuator.site import FACTORY, GPU, TRIED, Site

BROKEN = "no_such_key = 1"


@dataclass
class AlteredDevice:
    """A device in a file, behind a dead root process."""

    site: Site

    def altered(self) -> dict[str, Any]:
        """Return the knobs that differ from their original values."""
        return {k: v for k, v in self.site.values.items() if v != FACTORY[k]}

    def restore_with_broken_configuration(self) -> tuple[int, str]:
        """Run the unit's ExecStopPost command with an unknown key in the configuration."""
        self.site.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }', BROKEN)
        state = str(self.site.folder / "state")
        return self.site.start("restore", STATE_DIRECTORY=state).wait(60.0), self.site.log


def altered_device(folder: Path) -> AlteredDevice:
    """Return a device that was set through a root process, which was then killed."""
    site = Site(folder)
    serving = site.serve()
    with closing(open_remote(site.socket, GPU, Time())) as remote:
        remote.apply(TRIED)
        serving.kill()
        serving.wait(60.0)
    return AlteredDevice(site)
