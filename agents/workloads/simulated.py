"""The inference of a simulated GPU: for the NVML library of the tests only.

That library serves batches back to back at the configured clocks of its GPU, and reports the served
items through functions beside NVML's. The metrics are marked as simulated.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import partial
from pathlib import Path

from agents.host.processes.ownership import WorkloadIdentity
from agents.load.window import OpenWindow, WindowMeter
from agents.target.side import Side
from tuner.core import (
    ActuationError,
    Clock,
    InvalidInput,
    Knob,
    Latencies,
    Metric,
    Origin,
    Part,
    Reading,
    Role,
    Scope,
    Setting,
    Space,
    quantile_estimate,
)

LIBRARY = "libnvidia-ml.so.1"
SIDE_DOOR = ("fakenvml_get", "fakenvml_set", "fakenvml_latencies")
BATCH = Knob("batch_size", (1, 2, 4, 8, 12, 16, 24, 32), 16, Part.WORKLOAD, role=Role.BATCH)
ROOM = 16384
"""Number of latencies that the library keeps."""
QUANTILES = {"latency_p50_ms": 0.50, "latency_p99_ms": 0.99}
METRICS = (*QUANTILES, "throughput_per_s")


def is_there() -> bool:
    """Return whether the NVML library on the path is the simulated one."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return all(hasattr(library, name) for name in SIDE_DOOR)


def open_simulated_inference(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Open the inference of the first simulated GPU.

    Raises:
        InvalidInput: the NVML library on the path is not the simulated one.
    """
    if not is_there():
        raise InvalidInput(
            f"the workload {spec!r} runs only on the simulated NVML library of the tests",
            hint="choose reference, or http://127.0.0.1:PORT of a running server",
        )
    served = Served(ctypes.CDLL(LIBRARY))
    return Side(
        name="simulated-inference",
        kind="simulated",
        board="simulated GPU",
        version="1",
        space=Space((BATCH,)),
        metrics=tuple(Metric(name, Origin.SIMULATED, Scope.SERVICE) for name in METRICS),
        actuator=BatchSize(served),
        meter=WindowMeter(partial(InferenceWindow, served)),
        source="the simulated inference's own clock",
        identity=WorkloadIdentity(processes=lambda: (int(served.get("own_pid")),)),
    )


class Served:
    """The library's own functions beside NVML, for its first GPU."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.fakenvml_set.argtypes = (ctypes.c_uint, ctypes.c_char_p, ctypes.c_double)

    def get(self, name: str) -> float:
        """Return a value of the simulation. Raises ActuationError."""
        value = ctypes.c_double()
        if self._library.fakenvml_get(0, name.encode(), ctypes.byref(value)):
            raise ActuationError(f"the simulated GPU does not report {name}")
        return value.value

    def set(self, name: str, value: float) -> None:
        """Set a value of the simulation. Raises ActuationError."""
        if self._library.fakenvml_set(0, name.encode(), value):
            raise ActuationError(f"the simulated GPU does not accept {name}")

    def latencies_ms(self, since: int) -> tuple[int, list[float]]:
        """Return the sampled requests' latencies since a mark, and the mark to continue from."""
        mark, room = ctypes.c_uint64(since), (ctypes.c_double * ROOM)()
        count = self._library.fakenvml_latencies(0, ctypes.byref(mark), room, ROOM)
        return int(mark.value), list(room[: max(0, count)])


class BatchSize:
    """Set the batch size of the simulated inference."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def read(self) -> Setting:
        """Return the batch size in force. Raises ActuationError."""
        return {BATCH.name: int(self._served.get("batch"))}

    def apply(self, setting: Setting) -> None:
        """Set the batch size. Raises UnknownKnob, OutOfRange, ActuationError."""
        Space((BATCH,)).check_named(setting)
        for value in setting.values():
            self._served.set("batch", float(value))


class InferenceWindow(OpenWindow):
    """One window: the items since its start, and a sample of their latencies."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._items = served.get("items")
        self._mark, _ = served.latencies_ms(0)
        self._latencies_ms: list[float] = []

    def _shown(self) -> Reading:
        """Return the metrics so far."""
        self._mark, new = self._served.latencies_ms(self._mark)
        self._latencies_ms += new
        items = self._served.get("items") - self._items
        tails = {
            name: quantile_estimate(
                self._latencies_ms, quantile, origin=Origin.SIMULATED, scope=Scope.SERVICE
            )
            for name, quantile in QUANTILES.items()
            if self._latencies_ms
        }
        return Reading({"items": items, "failed": 0.0}, tails)

    def _ended(self) -> Reading:
        """Return the last metrics, with the sampled latencies."""
        reading = self._shown()
        latencies = Latencies.of(self._latencies_ms) if self._latencies_ms else None
        return replace(reading, latencies=latencies)
