"""Orders to an agent, and its answers."""

from __future__ import annotations

import httpx2

from tests.fakes import Rig
from tuner.core import (
    Limit,
    Phase,
    Plan,
    Setting,
)
from tuner.wire import Assignment, HoldOrder

TRIED: Setting = {"gpu.clock_mhz": 400, "batch_size": 4}
HELD: Setting = {"gpu.clock_mhz": 600, "batch_size": 2}
ORIGINAL: Setting = {"gpu.clock_mhz": 800, "batch_size": 1}
LIMIT = Limit("latency_p99_ms", "<=", 50.0)


def trial(number: int = 1, study: str = "s1", **changes: object) -> Assignment:
    fields: dict[str, object] = {
        "study": study,
        "revision": 1,
        "trial": number,
        "attempt": 1,
        "token": number,
        "nonce": f"n{number}",
        "lease_s": 30.0,
        "phase": Phase.TUNING,
        "setting": TRIED,
        "baseline": {"gpu.clock_mhz": 1000, "batch_size": 1},
        "metrics": ("energy_j", "latency_p99_ms"),
        "limits": (LIMIT,),
        "window_s": 10.0,
        "max_window_s": 30.0,
    }
    return Assignment(**{**fields, **changes})  # type: ignore[arg-type]


def hold(revision: int = 1, **changes: object) -> HoldOrder:
    fields: dict[str, object] = {
        "study": "s1",
        "revision": revision,
        "plan": Plan.single(HELD),
        "baseline": {"gpu.clock_mhz": 1000, "batch_size": 1},
        "limits": ((LIMIT,),),
        "metrics": ("energy_j",),
        "valid_for_s": 3600.0,
        "observe_s": 60.0,
        "window_s": 10.0,
    }
    return HoldOrder(**{**fields, **changes})  # type: ignore[arg-type]


def cut(_: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("no route")


def ends(rig: Rig) -> list[str]:
    return [m["ended"] for m in rig.tuner.told("/holds/report") if m["ended"]]
