"""Orders to an agent, and its answers."""

from __future__ import annotations

import httpx2

from tests.fakes import Rig
from tests.orders import assignment, hold_order
from tuner.core import (
    Limit,
    Plan,
    Setting,
)
from tuner.wire import Assignment, HoldOrder

TRIED: Setting = {"gpu.clock_mhz": 400, "batch_size": 4}
HELD: Setting = {"gpu.clock_mhz": 600, "batch_size": 2}
ORIGINAL: Setting = {"gpu.clock_mhz": 800, "batch_size": 1}
BASELINE: Setting = {"gpu.clock_mhz": 1000, "batch_size": 1}
LIMIT = Limit("latency_p99_ms", "<=", 50.0)


def trial(number: int = 1, **changes: object) -> Assignment:
    fields: dict[str, object] = {"metrics": ("energy_j", "latency_p99_ms"), "limits": (LIMIT,)}
    fields |= {"trial": number, "token": number, "nonce": f"n{number}", "max_window_s": 30.0}
    return assignment(TRIED, BASELINE, **{**fields, **changes})


def hold(revision: int = 1, plan: Plan | None = None, **changes: object) -> HoldOrder:
    fields: dict[str, object] = {"revision": revision, "limits": ((LIMIT,),)}
    return hold_order(plan or Plan.single(HELD), BASELINE, **{**fields, **changes})


def cut(_: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("no route")


def ends(rig: Rig) -> list[str]:
    return [m["ended"] for m in rig.tuner.told("/holds/report") if m["ended"]]
