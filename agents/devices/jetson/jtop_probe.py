"""Print the values of jetson-stats' service as one line of JSON, in a separate process; never imported.

jetson-stats is AGPL-3.0 and optional; only this module imports it. Source: its `jtop` client, 7.2. Nothing
is set through it.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def report() -> dict[str, Any]:
    """Return the present values of the service, or `error` with the reason if there are none."""
    try:
        from jtop import JtopException, jtop
    except ImportError:
        return {"error": "jetson-stats is not installed here"}
    try:
        with jtop() as service:
            if not service.ok():
                return {"error": "the jtop service reports nothing"}
            hardware = service.board.get("hardware", {})
            modes = service.nvpmodel
            return {
                "model": str(hardware.get("Model", "")),
                "jetpack": str(hardware.get("Jetpack", "")),
                "power_mw": service.power.get("tot", {}).get("power"),
                "temperatures_c": {n: t.get("temp") for n, t in service.temperature.items()},
                "gpu_processes": len(service.processes),
                "mode": str(modes) if modes else "",
                "modes": list(modes.models) if modes else [],
                "jetson_clocks": bool(service.jetson_clocks),
            }
    except JtopException as error:
        return {"error": f"the jtop service does not answer: {error}"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(report(), default=str) + "\n")
