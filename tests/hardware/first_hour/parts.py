"""The parts that use the product itself: its windows, its doctor, and a killed agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml

from tests.hardware.first_hour.load import Load
from tests.hardware.first_hour.sampling import power_mw, told

DOCTOR = "import sys; from tuner.cli.app import main; sys.exit(main(['doctor', '--json']))"
DOCTOR_S, AGENT_S = 60.0, 30.0
WINDOWS, OPEN_S = 10, 1.0
NO_SOCKET = Path("/nonexistent/actuator.sock")
"""A missing socket: without an actuator nothing can be set."""


class Doctor:
    """The product's doctor, in a process that has started."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-c", DOCTOR],
            env={**os.environ, "JOULETUNE_ACTUATOR": str(NO_SOCKET)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> dict[str, Any]:
        """Return its findings, and its seconds."""
        try:
            found, errors = self._process.communicate(timeout=DOCTOR_S)
        finally:
            self._process.kill()
        seconds = round(time.monotonic() - self._began, 2)
        if self._process.returncode != 0:
            return {"failed": errors[-2000:], "seconds": seconds}
        return {"seconds": seconds, **json.loads(found)}


def attached(uuid: str, state_dir: Path) -> Any:  # noqa: ANN401 - the product's Side, imported late
    """Return the GPU as the product's agent opens it, without an actuator."""
    from agents.devices.nvidia.device import attach
    from agents.host.machine import HostClock

    return attach(uuid, socket=NO_SOCKET, state_dir=state_dir, clock=HostClock())


def windows(
    uuid: str, handle: object, load: Load, state_dir: Path, seconds: float
) -> dict[str, Any]:
    """Return ten windows of the product's meter: joules per item, and the temperature."""
    side = attached(uuid, state_dir)
    rows = [window(side, handle, load, seconds) for _ in range(WINDOWS)]
    both = [
        (row["celsius"], row["j_per_item"])
        for row in rows
        if row.get("celsius") is not None and row.get("j_per_item")
    ]
    result: dict[str, Any] = {"source": side.source, "cannot": dict(side.cannot), "windows": rows}
    if (slope := _slope(both)) is not None:
        result["j_per_item_per_k"] = slope
    return result


def window(side: Any, handle: object, load: Load, seconds: float) -> dict[str, Any]:  # noqa: ANN401
    """Return one window: totals, notes, the rules' findings, items, and temperature at its end."""
    from tuner.core import MeasurementError, Reading, judged

    opened, before, began = side.meter.start(), load.items(), time.monotonic()
    time.sleep(seconds)
    row: dict[str, Any] = {}
    try:
        after, reading = load.items(), opened.stop()
    except MeasurementError as error:
        after, reading, row = None, Reading(), {"refused": str(error)}
    row |= {"seconds": time.monotonic() - began, "totals": dict(reading.totals)}
    row["notes"] = dict(reading.notes)
    row["rules"] = [
        {"rule": one.rule, "result": str(one.result), "why": one.why}
        for one in judged(reading.facts)
    ]
    heat = told(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    row |= {"celsius": None, "why": heat} if isinstance(heat, str) else {"celsius": heat}
    if before is not None and after is not None and after > before:
        row["items"] = after - before
        row["j_per_item"] = reading.totals.get("energy_j", 0.0) / (after - before)
    return row


def listed(handle: object, pid: int) -> dict[str, Any]:
    """Return whether NVML lists the load's process, and the number of other processes."""
    running = told(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if isinstance(running, str):
        return {"failed": running}
    pids = [one.pid for one in running]
    return {
        "load_listed": pid in pids,
        "others": len([one for one in pids if one != pid]),
        "mps": told(pynvml.nvmlDeviceGetMPSComputeRunningProcesses, handle) != [],
        "power_mw": power_mw(handle),
    }


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of a line through points, None if all have the same abscissa."""
    if len({x for x, _ in points}) < 2:
        return None
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return float(sum((x - mean_x) * (y - mean_y) for x, y in points) / spread)


def hold_open(uuid: str, state_dir: Path) -> None:
    """Open a window like an agent, report that, and wait to be killed."""
    opened, until = attached(uuid, state_dir).meter.start(), time.monotonic() + AGENT_S
    sys.stdout.write("open\n")
    sys.stdout.flush()
    while time.monotonic() < until:
        time.sleep(OPEN_S / 10.0)
        opened.read()


def killed(command: Sequence[str], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Kill an agent in a window; return whether it had one, and the measurement of the next agent."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        try:
            opened = agent.stdout.readline().strip() == "open"
            time.sleep(OPEN_S)
            alive = agent.poll() is None
        finally:
            agent.send_signal(signal.SIGKILL)
            agent.wait(AGENT_S)
    return {"in_a_window": opened and alive, "signal": -agent.returncode, "next": measure()}
