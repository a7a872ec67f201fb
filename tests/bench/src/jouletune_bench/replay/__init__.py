"""A measured table replayed as a device: only measured settings can be set, nothing is interpolated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from agents.host.symptoms import Symptom
from agents.target.side import Side
from jouletune_bench.replay.table import METRICS, Surface, load_surface
from tuner.core import Estimate, MeasurementError, Metric, Origin, Reading, Scope, Setting

__all__ = ["examine", "open_replay", "truth"]

NO_COLUMN = "the table has no such column"


def open_replay(
    rest: str, *, seed: int, state_dir: Path | None, root: Path, noise: float = 0.0
) -> Side:
    """Open `FILE.csv[#SURFACE]` at its baseline; the setting is lost when it is closed.

    `noise` is the standard deviation of a window's result relative to the table, lognormal and drawn
    afresh for each metric and window from `seed`; 0 gives the table's own numbers.

    Raises:
        InvalidInput: no such file or surface, or the table is not usable.
        ConfigError: `surfaces.toml` beside it is wrong.
    """
    surface = load_surface(rest)
    device = ReplayedDevice(surface, seed, noise)
    offered = [metric for metric, _ in METRICS.values()]
    return Side(
        name=f"replay-{Path(rest.partition('#')[0]).stem}-{surface.name}",
        kind="replay",
        board=f"{surface.device} (replayed, {surface.workload})",
        version=f"table {surface.digest}",
        space=surface.space,
        metrics=tuple(
            Metric(name, Origin.REPLAYED, Scope.BOARD, surface.quantities[name])
            for name in surface.metrics
        ),
        actuator=device,
        meter=device,
        clock=device,
        cannot={name: NO_COLUMN for name in offered if name not in surface.metrics},
    )


def truth(rest: str) -> Callable[[Setting], Mapping[str, float]]:
    """Return the table of `FILE.csv[#SURFACE]` as a function from a setting to its metrics.

    Raises InvalidInput for a missing file or surface; the function raises UnknownKnob or OutOfRange.
    """
    return load_surface(rest).row


def examine(root: Path) -> tuple[Symptom, ...]:
    """Return the replayed tables of a host: always empty, because they are files."""
    return ()


class ReplayedDevice:
    """Actuator, meter and clock over one table."""

    def __init__(self, surface: Surface, seed: int, noise: float) -> None:
        """Start at the surface's baseline, at time 0."""
        self.surface = surface
        self.noise = noise
        self._rng = Random(f"{seed}/{surface.name}")
        self._set = dict(surface.space.default)
        self._seconds = 0.0

    def read(self) -> Setting:
        """Return the setting in force."""
        return dict(self._set)

    def apply(self, setting: Setting) -> None:
        """Set the named knobs and keep the others.

        Raises:
            UnknownKnob, OutOfRange: the result was never measured; nothing was changed.
        """
        space = self.surface.space
        target = dict(self._set)
        for name, value in setting.items():
            knob = space.knob(name)
            target[name] = knob.values[knob.index(value)]
        space.check(target)
        self._set = target

    def monotonic(self) -> float:
        """Return the device's own time in seconds since it was opened."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Advance the device's time at once."""
        self._seconds += max(0.0, seconds)

    def start(self) -> ReplayedWindow:
        """Open a window now."""
        return ReplayedWindow(self, self._rng.random())


class ReplayedWindow:
    """A window over one configuration: the table's row, once some time has passed."""

    def __init__(self, device: ReplayedDevice, draw: float) -> None:
        """Start at the setting in force; `draw` fixes the window's noise."""
        self._device = device
        self._draw = draw
        self._setting = device.read()
        self._start = device.monotonic()
        self._shown: Reading | None = None

    def read(self) -> Reading:
        """Return the row; empty before any time has passed, and after a change of the setting."""
        if self._shown is not None:
            return self._shown
        if self._device.monotonic() <= self._start or self._device.read() != self._setting:
            return Reading()
        row = self._device.surface.row(self._setting)
        return Reading(estimates={n: self._noisy(n, value) for n, value in row.items()})

    def stop(self) -> Reading:
        """Close the window and return the row.

        Raises:
            MeasurementError: the setting was changed meanwhile; no row has the result of a change.
        """
        if self._shown is None:
            if self._device.read() != self._setting:
                raise MeasurementError(
                    "the setting was changed during the window",
                    hint="measure one setting at a time",
                )
            self._shown = self.read()
        return self._shown

    def _noisy(self, name: str, value: float) -> Estimate:
        sd = self._device.noise
        noisy = value * math.exp(Random(f"{self._draw}/{name}").gauss(0.0, sd)) if sd else value
        return Estimate.of_mean(noisy, noisy * sd, origin=Origin.REPLAYED)
