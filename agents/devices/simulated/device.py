"""A simulated device with its own clock: delayed clock changes, a warming chip, a stepping meter.

The settings, the delay of a change (0–2 s), the counter's 100 ms steps and the faults follow
published reports on NVML (ml.energy, "Thermally Stable Profiling"; arXiv 2502.20075 for the delay).
Batches are served back to back, so callers are never idle and the arrival rate is the throughput.
"""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from agents.devices.simulated.noise import EPOCH_S, epoch_factors, request_factor
from agents.devices.simulated.physics import OperatingPoint
from agents.devices.simulated.presets import Preset
from tuner import files
from tuner.core import (
    ActuationError,
    ConfigError,
    DeviceLost,
    Part,
    Setting,
    Space,
    StoreError,
    Value,
)

log = logging.getLogger(__name__)

NS = 1_000_000_000
TICK_NS = NS // 10
EPOCH_NS = int(EPOCH_S * NS)
LONGEST_DELAY_S = 2.0
KEPT_PER_S = 200.0
"""The most request latencies recorded per second of simulated time. Of more requests, a sample is."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults to inject in tests.

    `refuse`: a change is refused and nothing changes. `lost`: the device does not answer.
    `counter`: its energy counter stops, or runs backwards.
    """

    refuse: bool = False
    lost: bool = False
    counter: Literal["right", "frozen", "backwards"] = "right"


@dataclass(frozen=True, slots=True)
class Counters:
    """All counters at one moment; `counter_j` is as of `counter_ns`, the last 100 ms step."""

    now_ns: int
    counter_ns: int
    counter_j: float
    steps: int
    items: int
    throttled_s: float


class SimulatedDevice:
    """Actuator and clock in one: the settings, and a simulation that advances while a caller sleeps."""

    def __init__(
        self, preset: Preset, workload: str, *, seed: int, state_file: Path | None = None
    ) -> None:
        """Restore the device from its state file, or start at its defaults; cold, at time 0.

        Raises:
            ConfigError: the state file belongs to another device.
        """
        self.preset = preset
        self.workload = workload
        self.space = preset.space
        self.work = preset.work(workload)
        self.faults = Faults()
        self.celsius = preset.chip.thermal.ambient_c
        self._seed = seed
        self._state_file = state_file
        self._unsaved = False
        self._set = dict(load_setting(state_file, self.space) if state_file else self.space.default)
        self._point = preset.point(self._set)
        self._due_ns: int | None = None
        self._delays = Random(f"{seed}/delay")
        self._requests = Random(f"{seed}/requests")
        self._now_ns = 0
        self._energy_j = 0.0
        self._counter = (0, 0.0)
        self._progress = 0.0
        self._items = 0
        self._throttled_s = 0.0
        self._listeners: list[list[float]] = []

    def read(self) -> Setting:
        """Return the setting, which takes effect within 2 s.

        Raises DeviceLost.
        """
        self.answering()
        self._save()
        return dict(self._set)

    def apply(self, setting: Setting) -> None:
        """Set the named knobs and keep the others.

        Device knobs follow within 2 s, the batch size immediately. A full disk does not prevent a
        change, as on real hardware: the setting is saved as soon as the disk accepts it.

        Raises:
            UnknownKnob, OutOfRange, ActuationError, DeviceLost: nothing was changed.
        """
        target = dict(self._set)
        for name, value in setting.items():
            knob = self.space.knob(name)
            target[name] = knob.values[knob.index(value)]
        self.answering()
        if target != self._set:
            if self.faults.refuse:
                raise ActuationError(
                    "the simulated device refuses the change", hint="a fault is on"
                )
            self._change(target)
            self._unsaved = self._state_file is not None
        self._save()

    def monotonic(self) -> float:
        """Return the device's own time in seconds since it was opened."""
        return self._now_ns / NS

    def sleep(self, seconds: float) -> None:
        """Advance the device's time by `seconds`, in almost no real time."""
        end = self._now_ns + max(0, round(seconds * NS))
        while self._now_ns < end:
            stops = [end, (self._now_ns // EPOCH_NS + 1) * EPOCH_NS, end // TICK_NS * TICK_NS]
            if self._due_ns is not None:
                stops.append(self._due_ns)
            self._pass_until(min(stop for stop in stops if stop > self._now_ns))
            if self._due_ns == self._now_ns:
                self._point, self._due_ns = self.preset.point(self._set), None

    def answering(self) -> None:
        """Check that the device answers. Raises DeviceLost."""
        if self.faults.lost:
            raise DeviceLost("the simulated device fell off the bus", hint="a fault is on")

    def reading(self) -> Counters:
        """Return the current counters."""
        steps = math.floor(self._progress)
        return Counters(self._now_ns, *self._counter, steps, self._items, self._throttled_s)

    def listen(self, latencies_ms: list[float]) -> None:
        """Append the latencies of requests from now on to a list: at most `KEPT_PER_S` per second."""
        self._listeners.append(latencies_ms)

    def unlisten(self, latencies_ms: list[float]) -> None:
        """Stop appending to that list."""
        self._listeners = [listener for listener in self._listeners if listener is not latencies_ms]

    def _save(self) -> None:
        """Save the setting, if it is not saved yet."""
        if self._state_file is None or not self._unsaved:
            return
        try:
            save_setting(self._state_file, self._set)
            self._unsaved = False
        except StoreError as error:
            log.warning("the simulated device's setting is not on the disk yet: %s", error)

    def _change(self, target: dict[str, Value]) -> None:
        """Accept a setting: the batch size at once, device knobs after a random delay."""
        knobs = self.space.knobs
        changed = {k.part for k in knobs if target[k.name] != self._set[k.name]}
        self._set = target
        if Part.DEVICE in changed:
            delay_s = self._delays.uniform(0.0, LONGEST_DELAY_S)
            self._due_ns = self._now_ns + max(1, round(delay_s * NS))
        point = self._point
        batch = self.preset.point(target).batch
        self._point = OperatingPoint(
            point.gpu_mhz, point.mem_mhz, point.cpu_mhz, point.limit_w, batch
        )

    def _pass_until(self, end_ns: int) -> None:
        """Advance time while clocks and noise are constant."""
        chip, point = self.preset.chip, self._point
        slower, hungrier = epoch_factors(self._seed, self._now_ns // EPOCH_NS)
        pace = chip.capped(self.work, point, self.celsius)
        seconds = (end_ns - self._now_ns) / NS
        throttled = pace.gpu_mhz < point.gpu_mhz
        # While the power cap applies, the total power is the cap; leakage does not add to it.
        ruled = throttled and pace.gpu_mhz > chip.min_gpu_mhz
        watts = point.limit_w if ruled else pace.power_w
        self.celsius, energy = chip.thermal.warm(self.celsius, watts, seconds, leaking=not ruled)
        self._energy_j += energy * hungrier
        self._throttled_s += seconds if throttled else 0.0
        before = math.floor(self._progress)
        self._progress += seconds / (pace.step_s * slower)
        served = (math.floor(self._progress) - before) * point.batch
        self._items += served
        self._answer(served, pace.step_s * slower * 1000.0, seconds)
        self._now_ns = end_ns
        if end_ns % TICK_NS == 0:
            self._tick()

    def _answer(self, served: int, batch_ms: float, seconds: float) -> None:
        """Append a sample of the latencies of served requests to each listener's list."""
        if self._listeners:
            count = min(served, math.ceil(KEPT_PER_S * seconds))
            latencies = [batch_ms * request_factor(self._requests) for _ in range(count)]
            for listener in self._listeners:
                listener.extend(latencies)

    def _tick(self) -> None:
        """Advance the energy counter by one step, with its fault."""
        counted = {
            "right": self._energy_j,
            "frozen": self._counter[1],
            "backwards": self._counter[1] - 1.0,
        }[self.faults.counter]
        self._counter = (self._now_ns, counted)


def load_setting(path: Path, space: Space) -> Setting:
    """Load the setting from a file; return the space's default if there is no file.

    Raises:
        ConfigError: the file belongs to another device, or cannot be read.
    """
    try:
        setting = json.loads(path.read_text(encoding="utf-8"))
        space.check(setting)
    except FileNotFoundError:
        return space.default
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} does not hold a setting of this simulated device: {error}",
            hint="delete it to start from the defaults",
        ) from error
    return {name: setting[name] for name in space.default}


def save_setting(path: Path, setting: Setting) -> None:
    """Write the file atomically: after a crash it has the old setting or the new one.

    Raises:
        StoreError: the disk refuses.
    """
    files.write(path, json.dumps(dict(setting)))
