"""`python -m tests.bench speculation`: adaptive speculation on the reference engine, measured here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from tests.bench.speculation.run import SpeculationResult


def speculation(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE.csv", help="Arrivals of real requests: a column arrival_s."),
    ],
    rounds: Annotated[int, typer.Option(min=2, help="Windows of each choice at each load.")] = 3,
    window_s: Annotated[float, typer.Option(metavar="S", min=0.2, help="Seconds of one.")] = 1.5,
    most_foreign: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0.0, help="Share of the cores that others may use."),
    ] = 0.1,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw tokens per second by length.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Profile the engine by the policy, then judge its plan against every fixed length, in turns.

    At 1 to 32 requests, under a load that moves through all of them as the trace's arrivals do, and
    when acceptance collapses. The first time its models are trained, which takes minutes.
    """
    from tests.bench.result import header
    from tests.bench.speculation.engine import WindowTerms
    from tests.bench.speculation.run import judge, long_trace
    from tuner.cli.output import console, echo_json

    arrivals_s = long_trace(trace)
    with console(stderr=True).status("starting") as status:
        result = judge(WindowTerms(window_s, rounds, most_foreign), arrivals_s, status.update)
    if plot is not None:
        from tests.bench.speculation.plot import draw

        draw(plot, result)
    if as_json:
        echo_json({**header(), **result.summary()})
    else:
        _show(result)


def speculation_synthetic(
    decoder: Annotated[
        str,
        typer.Option(
            metavar="MODULE:NAME",
            help="A function of a random.Random that returns a decoder, instead of those here.",
        ),
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Decoders of each kind.")] = 6,
) -> None:
    """Profile decoders of known costs by the policy, and judge its tables up to 256 requests; one JSON."""
    from tests.bench.result import header
    from tests.bench.speculation.synthetic import synthetic
    from tuner.cli.output import console, echo_json

    with console(stderr=True).status("starting") as status:
        results = synthetic(decoder, seeds, status.update)
    echo_json({**header(), **results})


def _show(result: SpeculationResult) -> None:
    from tests.bench.result import print_list
    from tuner.cli.output import console

    out = console()
    rows = [
        (
            str(b.batch),
            str(b.planned),
            str(b.best),
            _rate(b.rate(0)),
            _rate(b.rate(b.best)),
            _rate(b.rate(None)),
            f"{b.ratio(0)[0]:.2f} ± {b.ratio(0)[1]:.2f}",
            f"{b.ratio(b.best)[0]:.2f} ± {b.ratio(b.best)[1]:.2f}",
        )
        for b in result.batches
    ]
    heads = (
        ">requests",
        ">planned",
        ">best",
        ">off /s",
        ">best /s",
        ">adaptive /s",
        ">× off",
        ">× best",
    )
    print_list(out, heads, rows)
    moved, fixed = result.moving, result.moving.fixed
    single = max(fixed, key=lambda length: fixed[length])
    fell = result.collapse
    stopped = "never" if fell.stopped_after_s is None else f"after {fell.stopped_after_s:.2g} s"
    for line in (
        f"table     {result.table.points} of {result.table.of} points measured, draft {result.draft}",
        f"moving    adaptive {moved.adaptive / fixed[0]:.2f} × off, {moved.adaptive / fixed[single]:.2f} × "
        f"the best single length ({single})",
        f"collapse  drafting stopped {stopped}; {fell.after / fell.plain_after:.2f} × plain decoding",
        f"drafts    {result.misranked} of the pairs that differ were predicted the other way round",
        f"windows   {result.rejected_windows} thrown away for foreign load, "
        f"{result.disturbed_windows} kept in spite of it (worst {result.foreign_worst:.0%})",
    ):
        out.print(f"  {line}", soft_wrap=True)


def _rate(rate: tuple[float, float]) -> str:
    return f"{rate[0]:.0f} ± {rate[1]:.0f}"
