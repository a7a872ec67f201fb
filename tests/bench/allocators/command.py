"""`python -m tests.bench allocators`: the gain of each memory allocator on this machine."""

from __future__ import annotations

import math
import os
import statistics
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.workloads.reference.catalogue import Model
    from tests.bench.allocators.allocators import AllocatorGain


def allocators(
    models: Annotated[
        str, typer.Option(metavar="A,B,…", help="Published models to measure.")
    ] = "mobilenet,resnet50,gpt2,bert",
    batches: Annotated[str, typer.Option(metavar="A,B,…", help="Batch sizes.")] = "1,2,4,8,16",
    turns: Annotated[int, typer.Option(min=2, help="Pairs of windows of each comparison.")] = 4,
    window_s: Annotated[float, typer.Option(metavar="S", min=0.05, help="Seconds of one.")] = 1.0,
    most_foreign: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0.0, help="Share of the cores that others may use."),
    ] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Time one instance on all cores with each allocator at hand against plain glibc, in turns.

    A window in which other processes used the CPU is dropped and measured again.
    """
    from tests.engines.models import models as models_of

    compare(models_of(models), batches, turns, window_s, most_foreign, as_json=as_json)


def compare(
    models: Sequence[Model],
    batches: str,
    turns: int,
    window_s: float,
    most_foreign: float,
    *,
    as_json: bool,
) -> None:
    """Compare the allocators with each model, and print the results."""
    from tests.bench.allocators.allocators import compare_allocators
    from tests.bench.result import header
    from tuner.cli.output import console, echo_json

    sizes = tuple(sorted({int(text) for text in batches.split(",")}))
    screen, cores = console(stderr=True), sorted(os.sched_getaffinity(0))
    gains: list[AllocatorGain] = []
    with screen.status("starting") as status:
        for model in models:
            gains += compare_allocators(
                model, sizes, turns, window_s, most_foreign, cores, status.update
            )
    if as_json:
        echo_json({**header(), "cores": len(cores), "gains": gains})
    else:
        _show(gains)


def _show(gains: Sequence[AllocatorGain]) -> None:
    from tests.bench.result import print_list
    from tuner.cli.output import console

    out = console()
    rows = [
        (
            g.model,
            str(g.batch),
            g.allocator,
            f"{1000.0 * g.glibc_latency_s:.1f} ms",
            f"{1000.0 * g.latency_s:.1f} ms",
            f"{g.speedup:.2f} ± {g.speedup_stderr:.2f}",
            f"{g.glibc_bytes / 2**20:.0f} → {g.own_bytes / 2**20:.0f} MiB",
            f"{g.foreign:.0%}",
        )
        for g in gains
    ]
    heads = (
        "model",
        ">batch",
        "allocator",
        ">glibc",
        ">latency",
        ">speed-up",
        ">memory",
        ">others",
    )
    print_list(out, heads, rows)
    for allocator in dict.fromkeys(g.allocator for g in gains):
        own = [g for g in gains if g.allocator == allocator]
        means = {
            model: math.exp(statistics.fmean(math.log(g.speedup) for g in own if g.model == model))
            for model in dict.fromkeys(g.model for g in own)
        }
        slower = sum(g.is_slower for g in own)
        speedups = ", ".join(f"{model} {mean:.2f}" for model, mean in means.items())
        out.print(
            f"  {allocator}: speed-up in the mean {speedups}; {slower or 'none'} of {len(own)} slower "
            "than glibc beyond noise",
            soft_wrap=True,
        )
