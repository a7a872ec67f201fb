"""Series of a GPU's counters: the steps of the energy counter, and the clock under load."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pynvml

from tests.hardware.first_hour.series import Row, described, ratio, series, spread, steps

POLL_S = 0.002
LOOK_S, GLANCE_S = 0.02, 0.5
AVERAGE, INSTANT = 185, 186
"""NVML_FI_DEV_POWER_AVERAGE and NVML_FI_DEV_POWER_INSTANT, in milliwatts."""
SCOPES = ("gpu", "module", "memory")
"""NVML_POWER_SCOPE_GPU, _MODULE and _MEMORY are 0, 1 and 2."""


def energy(handle: object, seconds: float) -> dict[str, Any]:
    """Return the steps of the energy counter in this time, with both power fields."""
    counter = told(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    if isinstance(counter, str):
        return {"not_run": f"no energy counter: {counter}"}
    looks: list[Row] = []
    began = time.monotonic()

    def polled() -> Row:
        if time.monotonic() - began >= GLANCE_S * len(looks):
            looks.append(_look(handle))
        return _energies(handle)

    rows = series(seconds, POLL_S, polled)
    result: dict[str, Any] = {"samples": len(rows), "seconds": rows[-1][0] if rows else 0.0}
    result["sm_mhz"] = spread([look[0] for look in looks if look[0] >= 0])
    result["utilisation_pct"] = spread([look[2] for look in looks if look[2] >= 0])
    counter_steps = steps(rows, 1)
    result["counter_mj"] = described(counter_steps)
    for name, column in (("average_mw", 2), ("instant_mw", 3)):
        if any(not math.isnan(row[column]) for row in rows):
            result[name] = described(steps(rows, column))
            result[f"ratio_to_{name}"] = ratio(rows, counter_steps, column)
            known = [row[column] for row in rows if not math.isnan(row[column])]
            result[name] |= spread(known)
    result["steps"] = [[round(t * 1000, 1), value] for t, value in counter_steps]
    return result


def _energies(handle: object) -> Row:
    mj = told(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    fields = told(pynvml.nvmlDeviceGetFieldValues, handle, [AVERAGE, INSTANT])
    powers = {
        int(f.fieldId): float(f.value.uiVal)
        for f in (() if isinstance(fields, str) else fields)
        if f.nvmlReturn == pynvml.NVML_SUCCESS
    }
    now = math.nan if isinstance(mj, str) else float(mj)
    return now, powers.get(AVERAGE, math.nan), powers.get(INSTANT, math.nan)


def clocks(handle: object, seconds: float) -> dict[str, Any]:
    """Return SM clock, reasons and utilisation every 20 ms: a summary, and the series itself."""
    rows = series(seconds, LOOK_S, lambda: _look(handle))
    mhz = [row[1] for row in rows if row[1] >= 0]
    used = [row[3] for row in rows if row[3] >= 0]
    by_reason: dict[str, list[float]] = {}
    for row in rows:
        if row[1] >= 0 and row[2] >= 0:
            by_reason.setdefault(f"{int(row[2]):#x}", []).append(row[1])
    return {
        "samples": len(rows),
        "sm_mhz": spread(mhz),
        "utilisation_pct": spread(used),
        "reasons": {why: {"n": len(own), **spread(own)} for why, own in by_reason.items()},
        "columns": ["ms", "sm_mhz", "reasons", "utilisation_pct"],
        "series": [[round(row[0] * 1000), *map(int, row[1:])] for row in rows],
    }


def sm_mhz(handle: object) -> Any:  # noqa: ANN401 - a number, or NVML's error in words
    """Return the present SM clock."""
    return told(
        pynvml.nvmlDeviceGetClock, handle, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_ID_CURRENT
    )


def _look(handle: object) -> Row:
    """Return clock, reasons and utilisation; -1 for one that is not reported."""
    mhz = sm_mhz(handle)
    reasons = told(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    used = told(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return tuple(
        -1.0 if isinstance(one, str) else float(getattr(one, "gpu", one))
        for one in (mhz, reasons, used)
    )


def power_mw(handle: object) -> dict[str, Any]:
    """Return the present power by field and scope, or the code of its refusal."""
    names = {INSTANT: "instant", AVERAGE: "average"}
    asked = [(field, scope) for field in names for scope in range(len(SCOPES))]
    answers = told(pynvml.nvmlDeviceGetFieldValues, handle, asked)
    if isinstance(answers, str):
        return {"failed": answers}
    return {
        f"{names[field]} {SCOPES[scope]}": one.value.uiVal
        if one.nvmlReturn == pynvml.NVML_SUCCESS
        else f"code {one.nvmlReturn}"
        for (field, scope), one in zip(asked, answers, strict=True)
    }


def graphics_mhz(handle: object) -> Any:  # noqa: ANN401 - a summary, or NVML's error in words
    """Return number, least, greatest and steps of the graphics clocks at the greatest memory clock."""
    memory = told(pynvml.nvmlDeviceGetSupportedMemoryClocks, handle)
    if isinstance(memory, str):
        return memory
    clocks = told(pynvml.nvmlDeviceGetSupportedGraphicsClocks, handle, max(memory))
    if isinstance(clocks, str):
        return clocks
    steps_mhz = sorted({a - b for a, b in pairwise(sorted(clocks, reverse=True))})
    return {"n": len(clocks), "least": min(clocks), "most": max(clocks), "steps": steps_mhz}


def told(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - the binding is untyped
    """Return a call's result, or NVML's error as text."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        return f"{error} ({error.value})"
