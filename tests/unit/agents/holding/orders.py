"""A holder over a fake device, the orders it gets, and its watch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

from agents.holding.holder import Holder
from agents.holding.watch import Watch
from agents.host.machine import Host
from agents.target.observe import Ask, MeasuredWindow
from tests.builders import window
from tests.fakes import Rig
from tests.orders import hold_order
from tuner.core import Limit, Load, MeasurementError, Plan, Setting
from tuner.wire import HoldOrder, HoldReport

DEVICE = "fake@host"
HELD: Setting = {"gpu.clock_mhz": 600, "batch_size": 2}
BUSY: Setting = {"gpu.clock_mhz": 1000, "batch_size": 4}
LIMIT = Limit("latency_p99_ms", "<=", 50.0)
Seen = int | str | None
"""The requests of a window; None if it failed; a word for one of five that is not like the others."""


def order(revision: int = 1, plan: Plan | None = None, **changes: object) -> HoldOrder:
    plan = plan or Plan.single(HELD)
    fields: dict[str, object] = {"revision": revision, "limits": ((LIMIT,),) * len(plan.rows)}
    return hold_order(plan, BUSY, **{**fields, **changes})


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


def watched(
    rig: Rig, of: Holder, pass_s: Callable[[float], Seen]
) -> tuple[Watch, list[HoldReport]]:
    """Return the watch of a hold, and its reports; `pass_s` lets the seconds of a window pass."""

    def measured(_: Setting, ask: Ask, *__: object) -> MeasuredWindow:
        began, seen = rig.time.now(), pass_s(ask.window_s)
        if seen is None:
            raise MeasurementError("no item was completed")
        word, items = ("", seen) if isinstance(seen, int) else (seen, 5)
        shown = window(6.0, 100.0 if word == "broken" else 10.0, seconds=ask.window_s)
        shown = replace(shown, started_at=began, load=Load(completed=items))
        foreign, capped = (word if word == kind else "" for kind in ("foreign", "capped"))
        return MeasuredWindow(shown, foreign=foreign, capped=capped)

    kept = list[HoldReport]()
    bench = SimpleNamespace(target=rig.target, clock=rig.time, runs=None, window=measured)
    link, rng = SimpleNamespace(keep=kept.append), random.Random(0)
    parts = (bench, of, link, rig.time, lambda: None, rng, lambda _: None)
    return Watch(DEVICE, *parts), kept  # type: ignore[arg-type]


def billed(kept: list[HoldReport]) -> float:
    """Return the requests for which reports count."""
    shown = ((one.measurement, one.speaks_s or 0.0) for one in kept)
    return sum(w.load.completed / w.seconds * seconds for w, seconds in shown if w)
