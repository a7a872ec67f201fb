"""A device's energy during a job's lease, by its driver's meter and with that meter's checks."""

from __future__ import annotations

from functools import partial
from math import inf
from pathlib import Path

from agents.target.joules import CountedJoules, EnergySource, Joules, in_background
from tuner.core import Clock, TuningError, demand

STEP_S = 0.1
"""The update period of NVML's energy counter, in seconds: agents/devices/nvidia/energy.py."""
SHORT = "the job had ended before the counter moved"


def find_energy(uuid: str, driver: str, root: Path, clock: Clock) -> EnergySource:
    """Return the source of the energy of a device of the actuator. Raises TuningError."""
    kind = driver.partition(":")[0]
    if kind == "nvidia":
        return EnergySource(partial(_counter, uuid, clock), "the GPU's own counter")
    if kind == "cpu":
        from agents.devices.cpu import energy as cpu

        return cpu.find_energy(root, clock, in_background)
    if kind == "drm":
        from agents.devices.drm import device
        from agents.devices.drm import energy as drm

        folder = device.chosen(uuid.removeprefix("drm:"), root).folder
        return drm.find_energy(folder, clock, in_background)
    return EnergySource(None, why_not=f"no energy is read of devices of the driver {kind}")


def _counter(uuid: str, clock: Clock) -> Joules:
    """Open a GPU's counter, in mJ. Raises TuningError."""
    from agents.devices.nvidia.energy import MOST_W
    from agents.devices.nvidia.nvml import Gpu, counter_mj

    return CountedJoules(
        partial(counter_mj, Gpu(uuid)),
        clock,
        step_j=1e-3,
        span=1 << 64,
        most_w=MOST_W,
        patience_s=inf,
        meter="the energy counter",
    )


class JobEnergy:
    """The joules of a device since it was opened; after an error there are none."""

    def __init__(self, uuid: str, driver: str, root: Path, clock: Clock) -> None:
        self._clock, self._refused, self._source = clock, "", ""
        self._meter: Joules | None = None
        self._joules = self._seconds = 0.0
        try:
            source = find_energy(uuid, driver, root, clock)
            self._refused, self._source = source.why_not, source.source
            self._meter = source.open() if source.open else None
        except (TuningError, OSError) as error:
            self._refused = str(error)
        self._began_s = clock.monotonic()

    def look(self) -> None:
        """Read the meter, unless it was refused."""
        if self._meter is None or self._refused:
            return
        try:
            self._joules = self._meter.read()
            demand(*self._meter.facts())
        except (TuningError, OSError) as error:
            self._refused = str(error)
        self._seconds = self._clock.monotonic() - self._began_s

    def reported(self) -> dict[str, object]:
        """Close the meter; return the joules and their error, or the reason why there is no figure."""
        if self._meter is not None:
            self._meter.close()
        joules = round(self._joules, 3)
        if self._refused or self._seconds < STEP_S or joules <= 0.0:
            return {"refused": self._refused or SHORT}
        error_j = round(joules / self._seconds * STEP_S, 3)
        about = {"seconds": round(self._seconds, 3), "scope": f"{self._source}, all its users"}
        return {"energy_j": joules, "error_j": error_j, **about}
