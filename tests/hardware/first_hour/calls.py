"""The times and return codes of each NVML call of the product, as root and unprivileged.

The calls are read from the product's source, so that none is forgotten. Setters are listed, but never
called.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import math
import os
import re
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pynvml

REPEATS, CONNECTIONS = 200, 3
LONGEST_CALL_S, ALL_CALLS_S = 3.0, 25.0
"""The repetitions of one call, and all calls, end after this many seconds."""
CHILD_S = 60.0
NOBODY = 65534
UNKNOWN_ARGUMENTS = "its arguments are not in ARGUMENTS"
SETS = re.compile(r"nvml\w*(Set|Reset|Clear)[A-Z]?")
THROTTLES = (74, 76, 269, 270, 271)
POWERS = (185, 186)

Arguments = Callable[[Any, str], tuple[object, ...]]
ARGUMENTS: Mapping[str, Arguments] = {
    "nvmlDeviceGetClock": lambda h, _: (h, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT),
    "nvmlDeviceGetClockInfo": lambda h, _: (h, pynvml.NVML_CLOCK_SM),
    "nvmlDeviceGetMaxClockInfo": lambda h, _: (h, pynvml.NVML_CLOCK_SM),
    "nvmlDeviceGetMinMaxClockOfPState": lambda h, _: (
        h,
        pynvml.NVML_CLOCK_SM,
        pynvml.NVML_PSTATE_0,
    ),
    "nvmlDeviceGetFieldValues": lambda h, _: (h, list(THROTTLES)),
    "nvmlDeviceGetFieldValues of power": lambda h, _: (h, list(POWERS)),
    "nvmlDeviceGetHandleByIndex": lambda h, _: (0,),
    "nvmlDeviceGetHandleByUUID": lambda h, uuid: (uuid,),
    "nvmlDeviceGetSupportedGraphicsClocks": lambda h, _: (h, _greatest_memory_mhz(h)),
    "nvmlDeviceGetTemperature": lambda h, _: (h, pynvml.NVML_TEMPERATURE_GPU),
    "nvmlDeviceGetTemperatureV": lambda h, _: (h, pynvml.NVML_TEMPERATURE_GPU),
    "nvmlDeviceGetTemperatureThreshold": lambda h, _: (h, 1),
    "nvmlDeviceGetSamples": lambda h, _: (h, pynvml.NVML_TOTAL_POWER_SAMPLES, 0),
    "nvmlDeviceGetProcessUtilization": lambda h, _: (h, 0),
    "nvmlDeviceGetAPIRestriction": lambda h, _: (h, 0),
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda h, _: (h, 0),
    "nvmlDeviceGetViolationStatus": lambda h, _: (h, 0),
    "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles": lambda h, _: (
        h,
        ctypes.byref(pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()),
    ),
}
"""The arguments of calls that take more, or other, than a device's handle."""


def calls_of(source: Path) -> tuple[list[str], list[str]]:
    """Return the NVML functions named in the product's files: the getters, and the setters."""
    text = "\n".join(file.read_text() for file in sorted(source.rglob("*.py")))
    named = set(re.findall(r"\b(nvml(?:Init|Shutdown|System|Device|Unit|Gpu|Event)\w*)", text))
    there = {name for name in named if SETS.match(name) or hasattr(pynvml, name)}
    return sorted(n for n in there if not SETS.match(n)), sorted(n for n in there if SETS.match(n))


def measure(names: Sequence[str], index: int, scale: float) -> dict[str, Any]:
    """Return each call's codes and times; connections are first and last, because they are counted."""
    timings: dict[str, Any] = {"uid": os.geteuid()}
    timings["nvmlInit"] = connected = timed(pynvml.nvmlInit, (), CONNECTIONS)
    if connected["codes"] != {"0": CONNECTIONS}:
        return timings
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    repeats, until = max(CONNECTIONS, round(REPEATS * scale)), time.perf_counter() + ALL_CALLS_S
    more = ["nvmlDeviceGetFieldValues of power"] if "nvmlDeviceGetFieldValues" in names else []
    for name in [*names, *more]:
        if name not in ("nvmlInit", "nvmlShutdown"):
            timings[name] = _one(name, handle, uuid, repeats, until)
    timings["nvmlShutdown"] = timed(pynvml.nvmlShutdown, (), CONNECTIONS)
    return timings


def _one(name: str, handle: object, uuid: str, repeats: int, until: float) -> dict[str, Any]:
    function = getattr(pynvml, name.split()[0])
    needed = [
        p for p in inspect.signature(function).parameters.values() if p.default is p.empty
    ]  # fmt: skip
    given = ARGUMENTS.get(name)
    if given is None and len(needed) > 1:
        return {"not_run": UNKNOWN_ARGUMENTS}
    try:
        arguments = given(handle, uuid) if given else (handle,) * len(needed)
    except pynvml.NVMLError as error:
        return {"not_run": f"its arguments cannot be read: {error}"}
    return timed(function, arguments, repeats, until)


def timed(
    function: Callable[..., Any],
    arguments: tuple[object, ...],
    repeats: int,
    until: float = math.inf,
) -> dict[str, Any]:
    """Return the counts of a call's return codes, and its times in microseconds."""
    codes: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    times: list[float] = []
    until = min(until, time.perf_counter() + LONGEST_CALL_S)
    while not times or (len(times) < repeats and time.perf_counter() < until):
        began = time.perf_counter()
        try:
            answer, code = function(*arguments), 0
        except pynvml.NVMLError as error:
            answer, code = None, int(error.value)
        times.append((time.perf_counter() - began) * 1e6)
        codes[str(code)] += 1
        if function.__name__ == "nvmlDeviceGetFieldValues" and code == 0:
            fields.update(f"{one.fieldId}: {one.nvmlReturn}" for one in answer)
    times.sort()
    at = {f"p{p}_us": round(times[min(len(times) - 1, len(times) * p // 100)], 1) for p in (50, 99)}
    return {"n": len(times), "codes": dict(codes), **at, **({"fields": fields} if fields else {})}


def _greatest_memory_mhz(handle: object) -> int:
    return int(max(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)))


class Apart:
    """A job in a child process, as another user if one is given, which starts when it is asked for.

    The child is a fork, because the other user may not be allowed to read this Python. NVML does not
    survive a fork, so make it before the first connection.
    """

    def __init__(self, uid: int | None, job: Callable[[], dict[str, Any]]) -> None:
        self._reader, writer = os.pipe()
        waiting, self._start = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._start)
            if not os.read(waiting, 1):
                os._exit(0)
            _answer(writer, uid, job)
        os.close(writer)
        os.close(waiting)

    def result(self) -> dict[str, Any]:
        """Run it, and return its result."""
        os.write(self._start, b"1")
        return _awaited(self._reader)

    def end(self) -> None:
        """End the child."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        for end in (self._reader, self._start):
            os.close(end)


def _answer(writer: int, uid: int | None, job: Callable[[], dict[str, Any]]) -> None:
    try:
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        text = json.dumps(job())
    except Exception as error:  # noqa: BLE001 - the report tells it
        text = json.dumps({"failed": f"{type(error).__name__}: {error}"})
    with os.fdopen(writer, "w") as pipe:
        pipe.write(text)
    os._exit(0)


def _awaited(reader: int) -> dict[str, Any]:
    text, until = b"", time.monotonic() + CHILD_S
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(reader, 65536)
        if not piece:
            break
        text += piece
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError:
        return {"failed": f"no response within {CHILD_S:g} s; see `dmesg`"}
    return answer
