"""`--write`: what a host's owner may try with the product's actuator. It asks before the first write.

The actuator runs here with grants for this one GPU. Clocks are set under load, the actuator is killed, the
driver reloaded where that is possible; each time the settings must be the original ones afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml

from tests.hardware.first_hour import sampling, settings
from tests.hardware.first_hour.load import Load

CLOCK = "gpu.clock_mhz"
POINTS = 5
SETTLE_S, POLL_S, ANSWER_S = 5.0, 0.02, 30.0
TOLERANCE_MHZ = 30
MODULES = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
CONFIG = """socket = "{folder}/actuator.sock"
state_dir = "{folder}/state"
drivers = ["nvidia"]
[[device]]
match = "{uuid}"
[device.grant]
"gpu.clock_mhz" = {{ min = {least}, max = {most} }}
"""


def refused(uuid: str) -> str:
    """Ask the owner; return the reason why nothing is written, empty if it may be."""
    if os.geteuid() != 0:
        return "only root sets clocks"
    sys.stderr.write(
        f"--write sets the clocks of {uuid} several times, kills the actuator, and reloads the driver if "
        f"nothing uses it.\nOnly on a host of your own. Type the UUID to go on: "
    )
    sys.stderr.flush()
    return "" if sys.stdin.readline().strip() == uuid else "the UUID was not typed"


class Writing:
    """The writes to one GPU, through an actuator of our own."""

    def __init__(self, gpu: Mapping[str, Any], handle: object, load: Load, folder: Path) -> None:
        self.uuid, self.handle, self.load, self.folder = gpu["uuid"], handle, load, folder
        self.socket = folder / "actuator.sock"
        span = {name: gpu["graphics_mhz"][name] for name in ("least", "most")}
        text = CONFIG.format(folder=folder, uuid=self.uuid, **span)
        (folder / "actuator.toml").write_text(text)
        self.actuator: subprocess.Popen[bytes] | None = None

    def run(self) -> dict[str, Any]:
        """Return the findings; the settings are the original ones afterwards, or it says so."""
        found: dict[str, Any] = {}
        before = settings.shown()
        try:
            self._start()
            found["clocks"] = rows = self._clocks()
            found["after_release"] = settings.compared(before, settings.shown())
            found["after_kill"] = self._killed(before)
            found["after_reload"] = self._reloaded(before)
        finally:
            if self.actuator is None:
                self._start()  # it restores what a killed one left
            self._stop()
        found["after_rgc"] = self._rgc(before)
        ends = [one for name, one in found.items() if name.startswith("after_")]
        back = all(one.get("equal_but_for_readings", True) for one in ends)
        follows = sum(row["reached"] for row in rows)
        found["answer"] = (
            f"{follows} of {len(rows)} followed; {'all' if back else 'NOT all'} returned"
        )
        return found

    def _clocks(self) -> list[dict[str, Any]]:
        """Return for some clocks whether the SM reached each under load, and after how long."""
        device = self._device()
        (knob,) = [one for one in device.space.knobs if one.name == CLOCK]
        values = [int(value) for value in knob.values]
        rows = []
        try:
            for n in range(POINTS):
                wanted = values[round(n * (len(values) - 1) / (POINTS - 1))]
                device.apply({CLOCK: wanted})
                rows.append({"wanted_mhz": wanted, **self._reached(wanted)})
        finally:
            device.release()
            device.close()
        return rows

    def _reached(self, wanted: int) -> dict[str, Any]:
        """Return the settling time, and the clock at its end."""
        began, seen = time.monotonic(), None
        while (now := time.monotonic() - began) < SETTLE_S:
            seen = sampling.sm_mhz(self.handle)
            if not isinstance(seen, str) and abs(seen - wanted) <= TOLERANCE_MHZ:
                return {"reached": True, "settled_s": round(now, 3), "sm_mhz": seen}
            time.sleep(POLL_S)
        return {"reached": False, "sm_mhz": seen}

    def _held(self) -> None:
        """Hold the lowest clock, and end the actuator as kill -9 does."""
        device = self._device()
        (knob,) = [one for one in device.space.knobs if one.name == CLOCK]
        device.hold({CLOCK: knob.values[0]}, "first-hour", 1, 600.0)
        self._stop(signal.SIGKILL)
        device.close()

    def _killed(self, before: str) -> dict[str, Any]:
        """Return the comparison after the actuator was killed in a hold and started again."""
        self._held()
        self._start()
        return settings.compared(before, settings.shown())

    def _reloaded(self, before: str) -> dict[str, Any]:
        """Return the comparison after the driver was reloaded below a hold."""
        if shutil.which("modprobe") is None:
            return {"not_run": "no modprobe here"}
        self.load.end()
        self._held()
        pynvml.nvmlShutdown()  # an open device keeps the driver in use
        asked = (["modprobe", "-r", *MODULES], ["modprobe", "nvidia"])
        done = [subprocess.run(one, capture_output=True, text=True, check=False) for one in asked]
        pynvml.nvmlInit()
        self._start()
        if done[0].returncode:
            return {"not_run": f"the driver is in use: {done[0].stderr.strip()[:200]}"}
        return settings.compared(before, settings.shown())

    def _rgc(self, before: str) -> dict[str, Any]:
        """Return the comparison after `nvidia-smi -rgc`: it must find nothing to reset."""
        program = shutil.which("nvidia-smi")
        if program is None:
            return {"not_run": "nvidia-smi is not there"}
        subprocess.run([program, "-rgc"], capture_output=True, timeout=ANSWER_S, check=False)
        return settings.compared(before, settings.shown())

    def _device(self) -> Any:  # noqa: ANN401 - the product's RemoteKnobs, imported late
        from agents.actuator_client.client import open_remote
        from agents.host.machine import HostClock

        return open_remote(self.socket, self.uuid, HostClock())

    def _start(self) -> None:
        """Start the actuator, and wait until it answers."""
        self.socket.unlink(missing_ok=True)
        command = [sys.executable, "-m", "agents.actuator.main", "serve"]
        with (self.folder / "actuator.log").open("ab") as log:
            self.actuator = subprocess.Popen(
                [*command, str(self.folder / "actuator.toml")], stdout=log, stderr=log
            )
        until = time.monotonic() + ANSWER_S
        while not self.socket.exists() and time.monotonic() < until:
            time.sleep(POLL_S)

    def _stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the actuator; without SIGKILL it restores first."""
        if self.actuator is not None:
            self.actuator.send_signal(how)
            self.actuator.wait(ANSWER_S)
            self.actuator = None
