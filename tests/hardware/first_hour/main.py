"""The first hour on a GPU host: reads everything, sets nothing, leaves one JSON, one page, one archive.

No clock, limit or mode is changed without `--write`: no setter is called, and no actuator. It takes at most
six minutes, the most valuable part first; a part that does not fit into the rest is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from tests.hardware.first_hour import batches, calls, load, parts, sampling, settings, study, write
from tests.hardware.first_hour.page import page
from tests.hardware.first_hour.questions import questions

FORMAT = "jouletune-first-hour-1"
LIMIT_S = 360.0
ENERGY_S, CLOCKS_S, WINDOW_S, SETTLE_S = 14.0, 12.0, 3.0, 2.0
CALLS_S, CHECK_S, DOCTOR_S, AGENT_S, LIST_S = 20.0, 10.0, 10.0, 10.0, 2.0
STUDY_S, TURN_S, FOREIGN = 90.0, 3.0, 0.15
NO_GPU = 3
"""The exit status where no GPU answers."""
LOADED = (
    *("energy_context", "energy_steady", "energy_memory", "energy_on_off", "who_works_here", "windows"),
    *("clocks_100", "clocks_30", "clocks_5", "doctor_loaded", "agent_killed"),
)  # fmt: skip
"""The parts that say nothing of a GPU without a load."""
RESERVE_S = 12.0
"""The seconds reserved for the last read of the settings, the report and the end of the load."""


class FirstHour:
    """The parts one after the other, and their findings; both files are written after every part."""

    def __init__(self, index: int, scale: float, state_dir: Path, output: Path) -> None:
        self.index, self.scale, self.state_dir, self.output = index, scale, state_dir, output
        self.began = time.monotonic()
        self.found: dict[str, Any] = {}
        self.gpu: dict[str, Any] = {}
        self.load: dict[str, Any] = {"on": "", "why": "no GPU answers"}

    def part(self, name: str, seconds: float, job: Callable[[], dict[str, Any]]) -> None:
        """Run a part of about this duration if there is time; an error is its finding."""
        left = LIMIT_S - RESERVE_S - (time.monotonic() - self.began)
        if left < seconds:
            self.found[name] = {"not_run": f"it takes {seconds:.0f} s; {left:.0f} s are left"}
            return
        if "uuid" in self.gpu:
            sys.stderr.write(f"{name} ({seconds:.0f} s)\n")
        try:
            self.found[name] = job()
        except Exception as error:  # noqa: BLE001 - told in the report; the next part goes on
            self.found[name] = {"failed": f"{type(error).__name__}: {error}"}
        self.write(complete=False)

    def run(self, *, writes: bool) -> None:
        """Run every part; with `writes` also those that set clocks."""
        before = settings.shown()
        with self._calls() as measured:
            self.gpu, handle = self._gpu()
            if handle is not None:
                self._study()
                with self._loaded() as working:
                    self.load = working.about
                    self._under_load(self.gpu["uuid"], handle, working)
            if not self.load["on"]:
                self.part("doctor_idle", DOCTOR_S, parts.Doctor().result)
            for name, result in measured.items():
                self.part(name, CALLS_S, result)
            if handle is not None:
                self._energy("idle", handle)
        self.found["settings"] = settings.compared(before, settings.shown())
        if writes and handle is not None:
            self.found["write"] = self._write(handle)
        self.write(complete=True)

    def write(self, *, complete: bool) -> None:
        """Write the findings so far."""
        report = {
            "format": FORMAT,
            "complete": complete,
            "seconds": round(time.monotonic() - self.began, 1),
            "limit_s": LIMIT_S,
            "scale": self.scale,
            "host": host(),
            "gpu": self.gpu,
            "load": self.load,
            "parts": self.found,
        }
        report["questions"] = questions(report)
        self.output.mkdir(parents=True, exist_ok=True)
        (self.output / "first-hour.json").write_text(json.dumps(report, indent=1) + "\n")
        (self.output / "first-hour.md").write_text(page(report))

    @contextmanager
    def _calls(self) -> Iterator[dict[str, Callable[[], dict[str, Any]]]]:
        """Yield what measures all reading calls as root and as nobody, made before NVML is opened."""
        import agents.devices.nvidia as product

        reading, setting = calls.calls_of(Path(product.__path__[0]))
        self.found["never_called"] = {"calls": setting}
        users: dict[str, int | None] = {"calls_root": None, "calls_unprivileged": calls.NOBODY}
        if os.geteuid() != 0:
            self.found["calls_root"] = {"not_run": "this is not root; run it once more as root"}
            users = {"calls_unprivileged": None}
        apart = {
            name: calls.Apart(uid, lambda: calls.measure(reading, self.index, self.scale))
            for name, uid in users.items()
        }
        try:
            yield {name: one.result for name, one in apart.items()}
        finally:
            for one in apart.values():
                one.end()

    def _gpu(self) -> tuple[dict[str, Any], object]:
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            return {"why": str(error)}, None
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
        query = sampling.told
        return {
            "index": self.index,
            "uuid": uuid,
            "name": query(pynvml.nvmlDeviceGetName, handle),
            "driver": query(pynvml.nvmlSystemGetDriverVersion),
            "memory_mhz": query(pynvml.nvmlDeviceGetSupportedMemoryClocks, handle),
            "graphics_mhz": sampling.graphics_mhz(handle),
            "limit_mw": query(pynvml.nvmlDeviceGetPowerManagementLimit, handle),
            "default_mw": query(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
            "enforced_mw": query(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            "limits_mw": query(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle),
        }, handle

    def _energy(self, name: str, handle: object) -> None:
        seconds = ENERGY_S * self.scale
        self.part(f"energy_{name}", seconds, lambda: sampling.energy(handle, seconds))

    def _study(self) -> None:
        """Tune the batch size of a load of ours."""
        device, quick = f"nvidia:{self.index}", self.scale < 1.0
        command = [sys.executable, sys.argv[0], "batches", device]
        window_s, trials = (1.0, 1) if quick else (TURN_S, len(batches.SIZES) - 1)

        def tuned() -> dict[str, Any]:
            with tempfile.TemporaryDirectory() as folder:
                found = study.study(device, command, Path(folder), window_s, trials, FOREIGN)
                if "evidence" in found:
                    shutil.copy(Path(folder) / study.ARCHIVE, self.output)
            return found

        self.output.mkdir(parents=True, exist_ok=True)
        self.part("batch_study", STUDY_S, tuned)

    @contextmanager
    def _loaded(self) -> Iterator[load.Load]:
        working = load.Load([sys.executable, sys.argv[0], "load"])
        try:
            yield working
        finally:
            working.end()

    def _under_load(self, uuid: str, handle: object, working: load.Load) -> None:
        seconds = WINDOW_S * self.scale

        def windows() -> dict[str, Any]:
            return parts.windows(uuid, handle, working, self.state_dir, seconds)

        if not working.there:
            why = f"no load: {working.about['why']}"
            self.found |= {name: {"not_run": why} for name in LOADED}
            return
        working.work("steady")
        doctor = parts.Doctor()  # beside the next parts: it only reads
        self.part("who_works_here", LIST_S, lambda: parts.listed(handle, working.pid))
        self._energy("steady", handle)
        self.part("windows", parts.WINDOWS * seconds + CHECK_S, windows)
        self.part("doctor_loaded", DOCTOR_S, doctor.result)
        for name, work in (("memory", "memory"), ("on_off", "on-off 0.05"), ("context", "idle")):
            working.work(work)
            self._energy(name, handle)
        for share in (100, 30, 5):
            working.work(f"share {share / 100:g}")
            time.sleep(SETTLE_S * self.scale)
            length = CLOCKS_S * self.scale
            self.part(f"clocks_{share}", length, lambda s=length: sampling.clocks(handle, s))  # type: ignore[misc]
        working.work("steady")
        command = [sys.executable, sys.argv[0], "agent", uuid, str(self.state_dir)]

        def again() -> dict[str, Any]:
            side = parts.attached(uuid, self.state_dir)
            return parts.window(side, handle, working, max(1.0, seconds))

        self.part("agent_killed", AGENT_S, lambda: parts.killed(command, again))

    def _write(self, handle: object) -> dict[str, Any]:
        """Set clocks under load, if the owner confirms it."""
        if why := write.refused(self.gpu["uuid"]):
            return {"not_run": why}
        with self._loaded() as working, tempfile.TemporaryDirectory() as folder:
            working.work("steady")
            try:
                return write.Writing(self.gpu, handle, working, Path(folder)).run()
            except Exception as error:  # noqa: BLE001 - told in the report
                return {"failed": f"{type(error).__name__}: {error}"}


def host() -> dict[str, Any]:
    """Return the description of this machine, without its name."""
    return {
        "at": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "root": os.geteuid() == 0,
    }


def main() -> int:
    """Run all parts, or the part of a child; return the exit status."""
    if sys.argv[1:2] == ["load"]:
        load.main()
        return 0
    if sys.argv[1:2] == ["batches"]:
        batches.main(sys.argv[2])
        return 0
    if sys.argv[1:2] == ["agent"]:
        parts.hold_open(sys.argv[2], Path(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--gpu", type=int, default=0, help="NVML's index of the GPU")
    parser.add_argument("--quick", action="store_true", help="a tenth of all durations, to try it")
    parser.add_argument("--write", action="store_true", help="also set clocks; asks before it does")
    parser.add_argument("--output", type=Path, default=Path(), help="the folder of the two files")
    given = parser.parse_args()
    scale = 0.1 if given.quick else 1.0
    with tempfile.TemporaryDirectory() as state_dir:
        hour = FirstHour(given.gpu, scale, Path(state_dir), given.output)
        hour.run(writes=given.write)
    if why := hour.gpu.get("why"):
        sys.stderr.write(
            f"no GPU answers: {why}; the report in {given.output} has what else was found\n"
        )
        return NO_GPU
    return 0
