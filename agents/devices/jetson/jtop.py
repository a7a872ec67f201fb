"""jetson-stats as a second, optional source, queried through a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROBE = "agents.devices.jetson.jtop_probe"
DEADLINE_S = 10.0
"""The service has new values once a second; most of this time is for starting the probe."""
AGREEMENT = 0.2
"""Accepted relative difference of power. On boards without a total rail jetson-stats sums all rails, one of
them twice on AGX Orin."""


@dataclass(frozen=True, slots=True)
class JtopReport:
    """The values of jetson-stats' service. `error` is the reason if there are none, else empty."""

    error: str = ""
    model: str = ""
    jetpack: str = ""
    mode: str = ""
    modes: Sequence[str] = ()
    power_w: float | None = None
    hottest_c: float | None = None
    gpu_processes: int = 0
    jetson_clocks: bool = False

    def disagrees(self, power_w: float) -> bool:
        """Return whether its total power differs from ours by more than `AGREEMENT`."""
        return self.power_w is not None and abs(self.power_w - power_w) > AGREEMENT * power_w


def ask_jtop(python: str = sys.executable) -> JtopReport:
    """Return the present report of jetson-stats, within `DEADLINE_S`; `python` runs the probe."""
    try:
        done = subprocess.run(
            [python, "-m", PROBE], capture_output=True, text=True, timeout=DEADLINE_S, check=True
        )
        return read_report(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return JtopReport(f"jetson-stats did not answer within {DEADLINE_S:g} s")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        return JtopReport(f"jetson-stats could not be queried: {error}")


def read_report(answer: Mapping[str, Any]) -> JtopReport:
    """Return the report of an answer; missing values and those of a wrong type are left out."""
    error = str(answer.get("error", ""))
    temperatures = answer.get("temperatures_c")
    readings = temperatures.values() if isinstance(temperatures, dict) else ()
    power, modes = answer.get("power_mw"), answer.get("modes")
    processes = answer.get("gpu_processes")
    return JtopReport(
        error=error,
        model=str(answer.get("model", "")),
        jetpack=str(answer.get("jetpack", "")),
        mode=str(answer.get("mode", "")),
        modes=[str(mode) for mode in modes] if isinstance(modes, list) else (),
        power_w=float(power) / 1000.0 if power is not None and _is_number(power) else None,
        hottest_c=max((t for t in readings if _is_number(t) and t > 0), default=None),
        gpu_processes=processes if isinstance(processes, int) else 0,
        jetson_clocks=answer.get("jetson_clocks") is True,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
