"""A device that a killed agent left at a hold."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from agents.config import Attachment
from agents.holding.holder import Holder
from agents.holding.journal import Journal
from agents.host.machine import Host, HostClock
from agents.main import open_target
from tests.builders import START
from tests.orders import hold_order
from tuner.core import (
    Plan,
    Setting,
)

A100 = Attachment("simulated:a100")
DEVICE = "simulated-a100@host"
HELD: Setting = {"gpu.clock_mhz": 1050, "gpu.power_limit_w": 200, "batch_size": 8}


def hold(state: Path, at: datetime = START) -> Setting:
    """Leave a device at a hold, like a killed agent; return its former setting."""
    target = open_target(A100, DEVICE, 0, state, Path("/"))
    before = target.read()
    keeper = Holder(
        DEVICE,
        target,
        folder=state / "holds",
        journal=Journal(state / "journal"),
        attached={"spec": A100.spec, "seed": "0"},
        host=Host("host", "boot-1", 2),
        clock=HostClock(),
        now=lambda: at,
    )
    keeper.take(hold_order(Plan.single(HELD), before, revision=3))
    return before
