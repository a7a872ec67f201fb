"""`python -m tests.bench budgets`: budgets kept whatever fails, and what dividing watts brings."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tuner.cli.options import AsJson


def budgets(
    fleets: Annotated[int, typer.Option(min=0, help="Random fleets with failures.")] = 10_000,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    hosts: Annotated[int, typer.Option(min=0, help="Hosts with agent and actuator.")] = 16,
    scenes: Annotated[str, typer.Option(metavar="N,N,…", help="Which events; default: all.")] = "",
    groups: Annotated[int, typer.Option(min=1, help="Random groups to divide watts for.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Break random fleets and real hosts, divide watts, and play a week of prices."""
    from tests.bench.budgets.week import play_week
    from tests.bench.budgets.worth import judge, measured_curves, simulated_curves
    from tests.bench.result import header
    from tuner.cli.output import console, echo_json

    screen = console(stderr=True)
    result: dict[str, Any] = {}
    with screen.status("dividing watts") as status:

        def tell(text: str) -> None:
            if screen.is_terminal:
                status.update(text)
            else:  # a log of a run that ends early names its last step
                screen.print(text)

        worths = [judge("simulated boards", simulated_curves(), groups, 5)]
        if curves := measured_curves():
            worths.append(judge("measured GPUs", curves, groups, 5))
        else:
            screen.print("no measured curves: set JOULETUNE_LLM_POWER to their folder")
        result["worth"] = worths
        weeks = [play_week(seed) for seed in range(100)]
        result["week"] = {
            "weeks": len(weeks),
            "worst_excess": max(week.excess for week in weeks),
            "mean_excess": sum(week.excess for week in weeks) / len(weeks),
            "mean_of_highest": sum(week.ours / week.highest for week in weeks) / len(weeks),
        }
        if hosts:
            chosen = [int(n) for n in scenes.split(",") if n]
            result["hosts"] = _hosts(hosts, chosen, tell)
        if fleets:
            result["fleets"] = _fleets(first, fleets, tell)
    if as_json:
        echo_json({**header(), **result})
    else:
        console().print(result)


def _fleets(first: int, count: int, tell: Callable[[str], None]) -> dict[str, Any]:
    from tests.bench.budgets.random_fleets import play

    above, below, unused = [], 0, 0
    for seed in range(first, first + count):
        if seed % 1000 == 0:
            tell(f"random fleet {seed}")
        outcome = play(seed)
        if max(outcome.above_w, outcome.drawn_above_w) > 1e-6:
            above.append(seed)
        below += outcome.below_floor
        unused += outcome.unused_w > 6.0
    return {
        "first": first, "fleets": count, "above": above, "floors_broken": below, "deadlocks": unused,
    }  # fmt: skip


def _hosts(count: int, chosen: Sequence[int], tell: Callable[[str], None]) -> dict[str, Any]:
    from tests.bench.budgets.hosts import SCENES, Racks
    from tests.nvml.fake import build, compiler

    if compiler() is None:
        return {"skipped": "no C compiler to build the fake NVML with"}
    with tempfile.TemporaryDirectory() as folder:
        racks = Racks(Path(folder), build(Path(folder)), count)
        began = time.monotonic()
        try:
            tell(f"starting {count} hosts")
            racks.start()
            racks.declare()
            ready_s = time.monotonic() - began
            outcomes = []
            with racks.watched():
                time.sleep(1.0)
                for scene in [SCENES[n] for n in chosen] or SCENES:
                    tell(scene.name)
                    outcomes.append(racks.play(scene))
        finally:
            racks.close()
    return {
        "hosts": count,
        "curves": racks.curves,
        "ready_s": round(ready_s, 1),
        "load": round(os.getloadavg()[1], 1),
        "scenes": outcomes,
    }
