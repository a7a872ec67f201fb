"""A GPU's energy: from a counter of its driver where it has one, else from its power, integrated.

Sources: drivers/gpu/drm/amd/include/kgd_pp_interface.h (gpu_metrics: steps of 2^-16 J on data-centre
parts; unused fields are all ones, MangoHud 875); the kernel's Documentation/gpu/amdgpu/thermal.rst
(`power1_average` or `power1_input`, whose choice changed with Linux 6.6);
Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon: a register of 32 bits, widened only when read, which
wraps within 4.4 min at 1,000 W. Ours: a counter that was not read for a minute gives no figure. Neither
does a sensor that never shows more than 2 W: AMD's tools show that for sensors which the kernel cannot
read.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import partial
from pathlib import Path

from agents.actuator.kernel_text import numbers
from agents.host.machine import text_of, whole_number
from agents.target.joules import CountedJoules, EnergySource, Every, IntegratedJoules
from tuner.core import Clock, MeasurementError

MOST_W = 2000.0
"""Upper bound of a card's power; with reported limits, twice the greatest."""
LIMITS = "hwmon/hwmon*/power[12]_{}"
BOUNDS = ("cap_max", "rated_max", "cap", "crit")
LEAST_W, PATIENCE_S, UJ, ACCUMULATED_J, SPAN = 2.0, 60.0, 1e-6, 2.0**-16, 1 << 64
ACCUMULATORS = {(1, 3): 24, (1, 4): 24, (1, 5): 88}
"""Revision of gpu_metrics to the place of its energy accumulator, in bytes."""
DATA_CENTRE = ("0x12", "0x0380")
"""PCI classes of cards without a display; the step of other cards' accumulators is not documented."""
POWERS = ("power1_average", "power1_input")
COUNTERS = {"energy1_input": "card", "energy2_input": "package without its memory"}


class GpuPower(IntegratedJoules):
    """Integrated power of a sensor that may show next to nothing."""

    def read(self) -> float:
        """Return joules so far. Raises MeasurementError if the sensor showed at most 2 W throughout."""
        joules = super().read()
        if self.greatest_w <= LEAST_W:
            raise MeasurementError(
                f"the power sensor shows at most {self.greatest_w:g} W",
                hint="this kernel cannot read it; use a newer one",
            )
        return joules


def find_energy(device: Path, clock: Clock, every: Every) -> EnergySource:
    """Return the source of the energy of the GPU at a PCI device's folder."""
    limits = (file for end in BOUNDS for file in device.glob(LIMITS.format(end)))
    most_w = 2.0 * max((n for file in limits for n in numbers(file)), default=0) * UJ or MOST_W
    try:
        if text_of(device / "class").startswith(DATA_CENTRE) and accumulator(device) is not None:
            open_ = partial(_counted, partial(_accumulated, device), clock, ACCUMULATED_J, most_w)
            return EnergySource(partial(open_, "gpu_metrics"), "the GPU's energy accumulator")
        for name, part in COUNTERS.items():
            for file in sorted(device.glob(f"hwmon/hwmon*/{name}")):
                whole_number(file)
                open_ = partial(_counted, partial(whole_number, file), clock, UJ, most_w)
                return EnergySource(partial(open_, str(file)), f"the {part}'s energy counter")
        for name in POWERS:
            for file in sorted(device.glob(f"hwmon/hwmon*/{name}")):
                whole_number(file)
                return EnergySource(
                    partial(GpuPower, partial(_watts, file), clock, every, most_w),
                    f"the GPU's power, integrated ({name})",
                )
    except MeasurementError as error:
        return EnergySource(None, why_not=error.message)
    return EnergySource(None, why_not="its driver shows neither energy nor power")


def metrics_format(device: Path) -> int:
    """Return the revision of gpu_metrics' format; 0 if it cannot be read."""
    with suppress(OSError, IndexError):
        return (device / "gpu_metrics").read_bytes()[2]
    return 0


def accumulator(device: Path) -> int | None:
    """Return the accumulator in gpu_metrics; None without one, or if it is all ones."""
    try:
        blob = (device / "gpu_metrics").read_bytes()
        at = ACCUMULATORS[blob[2], blob[3]]
        (counted,) = struct.unpack_from("<Q", blob, at)
    except (OSError, IndexError, KeyError, struct.error):
        return None
    return None if counted == SPAN - 1 else int(counted)


def _watts(file: Path) -> float:
    """Return the power in a file of µW, in W. Raises MeasurementError."""
    return whole_number(file) * UJ


def _accumulated(device: Path) -> int:
    """Return the accumulator. Raises MeasurementError without one."""
    if (counted := accumulator(device)) is None:
        raise MeasurementError(f"{device}/gpu_metrics no longer has an energy accumulator")
    return counted


def _counted(
    count: partial[int], clock: Clock, step_j: float, most_w: float, meter: str
) -> CountedJoules:
    """Open a counter of 64 bits."""
    return CountedJoules(
        count, clock, step_j=step_j, span=SPAN, most_w=most_w, patience_s=PATIENCE_S, meter=meter
    )
