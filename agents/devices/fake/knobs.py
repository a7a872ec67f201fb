"""Devices in a file, to try the actuator without hardware.

The file stands in for the hardware: writes outlive the process, an edit counts as another writer's
change, and `faults` lists faults to simulate.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.actuator.driver import Value
from tuner import files
from tuner.errors import ActuationError, DeviceLost, KnobRefused

A100: Mapping[str, Mapping[str, Any]] = {
    "gpu.clock_mhz": {"values": list(range(210, 1411, 60)), "default": None},
    "gpu.mem_clock_mhz": {"values": [405, 1215], "default": None},
    "gpu.power_limit_w": {"values": list(range(100, 401, 10)), "default": 400},
}
"""Knobs like those of an A100; a default of None means that the setting cannot be read, as with NVML."""
CEILING = "cpu.max_mhz"
CAPPED: Mapping[str, Mapping[str, Any]] = {
    CEILING: {"values": list(range(800, 3501, 100)), "default": 3500}
}
"""A ceiling like cpufreq's: it reads as the lower of the setting and the device's `cap`, if it has one."""
ALL = {**A100, **CAPPED}


def blank(*uuids: str, knobs: Mapping[str, Mapping[str, Any]] = A100) -> dict[str, Any]:
    """Return the content of a file with these devices at factory defaults."""
    devices = {
        uuid: {"values": {k: knob["default"] for k, knob in knobs.items()}, "faults": {}}
        for uuid in uuids
    }
    return {"epoch": "1", "devices": devices}


class FakeKnobs:
    """One device in a file.

    Faults of a knob: `refuse`: the write fails; `unsupported`: the device takes no value of it; `clamp`: a
    write sets this number instead; `hang`: the write never returns; `late`: the write never returns, but
    takes effect once the file `.let_go` exists, even if the process was killed, and then creates
    `.landed`. Faults of the device, under `*`: `lost`; `hang`; `overruled`: another program has set a
    knob that cannot be read. A device may also have a `cap`, and `lasting`, the names of knobs whose
    values outlive a boot.
    """

    board = "A100 (fake)"
    knobs = tuple(ALL)
    ceilings = (CEILING,)
    defaults: Mapping[str, Value] = {"gpu.power_limit_w": 400, CEILING: 3500}

    def __init__(self, path: Path, uuid: str) -> None:
        self.uuid = uuid
        self._path = path

    @property
    def epoch(self) -> str:
        """The load of the driver, from the file."""
        return str(load(self._path)["epoch"])

    @property
    def lasting(self) -> Sequence[str]:
        """The knobs whose values outlive a boot."""
        lasting: list[str] = load(self._path)["devices"][self.uuid].get("lasting", [])
        return lasting

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs and their values."""
        knobs = load(self._path)["devices"][self.uuid]["values"]
        return {name: tuple(ALL[name]["values"]) for name in knobs}

    def read(self) -> Mapping[str, Value | None]:
        """Return the values in force; None for a knob that cannot be read. Raises DeviceLost."""
        state = self._state()
        shown = {k: None if ALL[k]["default"] is None else v for k, v in state["values"].items()}
        if CEILING in shown and "cap" in state:
            shown[CEILING] = min(shown[CEILING], state["cap"])
        return shown

    def overruled(self, knob: str, wrote: Value | None) -> bool:
        """Return whether a fault simulates that another program has set a knob that cannot be read."""
        return self._state()["faults"].get("*") == "overruled" and wrote is not None

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob; None sets its default. Raises ActuationError, DeviceLost."""
        fault = self._state()["faults"].get(knob)
        if value is None:
            value = ALL[knob]["default"]
        elif isinstance(fault, dict):
            value = fault["clamp"]
        if fault == "refuse":
            raise ActuationError(f"{self.uuid} refuses {knob}={value!r}", hint="a fault is on")
        if fault == "unsupported":
            raise KnobRefused(f"{self.uuid} refuses {knob}", hint="a fault is on", knob=knob)
        if fault == "late" and os.fork() == 0:
            while not self._path.with_suffix(".let_go").exists():
                time.sleep(0.01)
            self._store(knob, value)
            self._path.with_suffix(".landed").touch()
            os._exit(0)
        if fault in ("hang", "late"):
            time.sleep(3600.0)
        self._store(knob, value)

    def _store(self, knob: str, value: Value | None) -> None:
        """Write a knob's value to the file."""
        state = load(self._path)
        state["devices"][self.uuid]["values"][knob] = value
        save(self._path, state)

    def _state(self) -> dict[str, Any]:
        """Return the device's part of the file, after its fault of the whole device, if any."""
        device: dict[str, Any] = load(self._path)["devices"][self.uuid]
        fault = device["faults"].get("*")
        if fault == "lost":
            raise DeviceLost(f"{self.uuid} fell off the bus", hint="a fault is on")
        if fault == "hang":
            time.sleep(3600.0)
        return device


def discover(path: str) -> list[FakeKnobs]:
    """Return the devices in a file.

    Raises:
        ActuationError: the file cannot be read.
    """
    return [FakeKnobs(Path(path), uuid) for uuid in load(Path(path))["devices"]]


def load(path: Path) -> dict[str, Any]:
    """Return the content of a file. Raises ActuationError."""
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ActuationError(f"cannot read the fake devices in {path}: {error}") from error
    return state


def save(path: Path, state: dict[str, Any]) -> None:
    """Replace a file atomically: a killed process has written it whole or not at all."""
    files.write(path, json.dumps(state))
