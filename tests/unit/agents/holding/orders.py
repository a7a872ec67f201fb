"""A holder over a fake device, and the orders it gets."""

from __future__ import annotations

from agents.holding.holder import Holder
from agents.host.machine import Host
from tests.fakes import Rig
from tuner.core import (
    Limit,
    Plan,
    Setting,
)
from tuner.wire import HoldOrder

DEVICE = "fake@host"
HELD: Setting = {"gpu.clock_mhz": 600, "batch_size": 2}
BUSY: Setting = {"gpu.clock_mhz": 1000, "batch_size": 4}
LIMIT = Limit("latency_p99_ms", "<=", 50.0)


def order(revision: int = 1, plan: Plan | None = None, **changes: object) -> HoldOrder:
    plan = plan or Plan.single(HELD)
    fields: dict[str, object] = {
        "study": "s1",
        "revision": revision,
        "plan": plan,
        "baseline": BUSY,
        "limits": ((LIMIT,),) * len(plan.rows),
        "metrics": ("energy_j",),
        "valid_for_s": 3600.0,
        "observe_s": 60.0,
        "window_s": 10.0,
    }
    return HoldOrder(**{**fields, **changes})  # type: ignore[arg-type]


def holder(rig: Rig) -> Holder:
    """Return the holder as after a fresh start of the agent."""
    return Holder(
        DEVICE,
        rig.target,
        folder=rig.folder / "holds",
        journal=rig.journal,
        attached={"spec": "fake"},
        host=Host("host", rig.boot, 2),
        clock=rig.time,
        now=rig.time.now,
    )
