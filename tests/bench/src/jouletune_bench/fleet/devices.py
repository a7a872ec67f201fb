"""Read the powers and speeds of the devices of a federation: `devices.toml` beside this file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner import toml
from tuner.core import JOULES_PER_KWH, ConfigError

FROZEN = Path(__file__).with_name("devices.toml")
TABLES = ("carbon", "work", "class", "radio", "interference")


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of devices: its share of the population, its peak speed, and its power in watts."""

    name: str
    share: float
    gflops: float
    busy_w: float
    idle_w: float


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A bandwidth in Mbit/s, normally distributed over rounds, and never below the least."""

    mean: float
    sd: float
    least: float


@dataclass(frozen=True, slots=True)
class Radio:
    """A network: the share of the devices on it, its power in watts by Mbit/s, and its bandwidths."""

    name: str
    share: float
    up_w_per_mbps: float
    down_w_per_mbps: float
    base_w: float
    up_mbps: Bandwidth
    down_mbps: Bandwidth


@dataclass(frozen=True, slots=True)
class TrainingWork:
    """The trained model: its size, the work of one sample, and the devices' efficiency at it."""

    model_bytes: float
    flops_per_sample: float
    sustained: float
    half_batch: float


@dataclass(frozen=True, slots=True)
class OtherApps:
    """Other apps: the probability of one beside the training, and its share of a device."""

    chance: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class FleetDevices:
    """All data from which a federation's energy is computed."""

    classes: tuple[DeviceClass, ...]
    radios: tuple[Radio, ...]
    work: TrainingWork
    interference: OtherApps
    intensity_g_per_kwh: float

    def carbon_g(self, energy_j: float) -> float:
        """Return the grams of CO₂ equivalents of some joules at the grid's mean intensity."""
        return energy_j / JOULES_PER_KWH * self.intensity_g_per_kwh

    def scaled(self, *, radio: float = 1.0, idle: float = 1.0) -> FleetDevices:
        """Return the same devices with other radio and idle power, to study their influence."""
        radios = tuple(
            replace(
                r,
                up_w_per_mbps=radio * r.up_w_per_mbps,
                down_w_per_mbps=radio * r.down_w_per_mbps,
                base_w=radio * r.base_w,
            )
            for r in self.radios
        )
        classes = tuple(replace(c, idle_w=idle * c.idle_w) for c in self.classes)
        return replace(self, classes=classes, radios=radios)

    def alike(self) -> FleetDevices:
        """Return a federation without differences: the middle class on WiFi at its mean, undisturbed."""
        middle = replace(self.classes[len(self.classes) // 2], share=1.0)
        radio = replace(
            self.radios[0],
            share=1.0,
            up_mbps=replace(self.radios[0].up_mbps, sd=0.0),
            down_mbps=replace(self.radios[0].down_mbps, sd=0.0),
        )
        quiet = replace(self.interference, chance=0.0)
        return replace(self, classes=(middle,), radios=(radio,), interference=quiet)


def load_devices(path: Path = FROZEN) -> FleetDevices:
    """Read a table of devices.

    Raises:
        ConfigError: it cannot be read, or a number is missing, negative or not finite.
    """
    table = toml.read(path, dict.fromkeys(TABLES, dict))
    try:
        radios = tuple(_radio(name, radio) for name, radio in table["radio"].items())
        return FleetDevices(
            tuple(DeviceClass(name, **_numbers(c)) for name, c in table["class"].items()),
            radios,
            TrainingWork(**_numbers(table["work"])),
            OtherApps(**_numbers(table["interference"])),
            _number(table["carbon"]["intensity_g_per_kwh"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path} does not describe a federation's devices: {error}",
            hint=f"see the example {FROZEN.name} of jouletune",
        ) from None


def _radio(name: str, table: Mapping[str, Any]) -> Radio:
    up, down = (Bandwidth(**_numbers(table[f"{way}_mbps"])) for way in ("up", "down"))
    power = {k: v for k, v in table.items() if not k.endswith("_mbps") or k.endswith("_per_mbps")}
    return Radio(name=name, up_mbps=up, down_mbps=down, **_numbers(power))


def _numbers(table: Mapping[str, Any]) -> dict[str, float]:
    return {name: _number(value) for name, value in table.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{value} is negative or not finite")
    return float(value)
