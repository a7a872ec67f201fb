"""A complete derived objective: an item's joules at the price of the hour, and the rent of its seconds.

`priced:DEVICE` is that device with one more metric, `cost_ueur`. Settings tried at different prices
would be compared at these prices, so a study of it should search in hours of one price.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from agents.devices.catalogue import open_device
from agents.host.machine import HostClock
from agents.host.processes.ownership import WorkloadIdentity
from agents.target.side import Closing, Side, TellsForeignLoad
from tuner.core import (
    Better,
    Clock,
    InvalidInput,
    Meter,
    Metric,
    OverDevices,
    Quantity,
    Reading,
    Window,
)

UEUR = Quantity("µEUR", Better.LESS, over_devices=OverDevices.SUM)
EUR_PER_KWH = (*[0.05] * 6, *[0.40] * 16, *[0.05] * 2)
"""By the hour of the day, in the host's time zone."""
RENT_UEUR_PER_S = 11.0
UEUR_PER_J = 1.0 / 3.6
"""At a price of one euro per kilowatt-hour."""
Now = Callable[[], datetime]


def open_priced(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open `priced:DEVICE`, as `priced:nvidia:0`."""
    side = open_device(rest, seed=seed, state_dir=state_dir, root=root)
    return priced(side, lambda: datetime.now(UTC).astimezone(), side.clock or HostClock())


def priced(side: Side, now: Now, clock: Clock) -> Side:
    """Return a device whose meter also reports its cost. Raises InvalidInput without an energy meter."""
    energy = next((m for m in side.metrics if m.name == "energy_j"), None)
    if energy is None:
        side.close()
        raise InvalidInput(f"{side.name} tells no joules", hint="see `jouletune doctor`")
    return replace(
        side,
        metrics=(*side.metrics, Metric("cost_ueur", energy.origin, energy.scope, UEUR)),
        meter=PricedMeter(side.meter, now, clock),
        spec=side.spec and f"priced:{side.spec}",
    )


class PricedMeter:
    """Opens windows that report their cost; all else is left to the device's meter."""

    def __init__(self, meter: Meter, now: Now, clock: Clock) -> None:
        self._meter, self._now, self._clock = meter, now, clock

    def start(self) -> PricedWindow:
        return PricedWindow(self._meter.start(), self._now, self._clock)

    def attribute_to(self, workload: WorkloadIdentity) -> None:
        if isinstance(self._meter, TellsForeignLoad):
            self._meter.attribute_to(workload)

    def close(self) -> None:
        if isinstance(self._meter, Closing):
            self._meter.close()


class PricedWindow:
    """One window: joules between two readings have the price of the second reading."""

    def __init__(self, window: Window, now: Now, clock: Clock) -> None:
        self._window, self._now, self._clock = window, now, clock
        self._at_s, self._joules, self._ueur = clock.monotonic(), 0.0, 0.0
        self._final: Reading | None = None

    def read(self) -> Reading:
        return self._final or self._billed(self._window.read())

    def stop(self) -> Reading:
        self._final = self._final or self._billed(self._window.stop())
        return self._final

    def _billed(self, reading: Reading) -> Reading:
        if "energy_j" not in reading.totals:
            return reading
        at_s, joules = self._clock.monotonic(), reading.totals["energy_j"]
        self._ueur += (joules - self._joules) * EUR_PER_KWH[self._now().hour] * UEUR_PER_J
        self._ueur += (at_s - self._at_s) * RENT_UEUR_PER_S
        self._at_s, self._joules = at_s, joules
        return replace(reading, totals={**reading.totals, "cost_ueur": self._ueur})
