"""`python -m tests.bench surfaces` and `made-up`: comparisons with known true values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tests.bench.contest import terms as contest
from tests.bench.contest.terms import (
    EVERY_TUNER,
    Budgets,
    Choosing,
    Jobs,
    LeaveOneOut,
    MostAbove,
    Noise,
    Output,
    OwnBaseline,
    PerSource,
    Plot,
    Seeds,
    Slack,
    Sources,
    Tuners,
    Variants,
    Without,
)
from tuner.cli.options import AsJson


def surfaces(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Measured surfaces: CSV files, surfaces.toml.")
    ],
    tuners: Tuners = EVERY_TUNER,
    budgets: Budgets = "5,8,12,20",
    slack: Slack = "1.1,1.25",
    noise: Noise = 0.02,
    seeds: Seeds = 5,
    jobs: Jobs = 2,
    sources: Sources = "",
    per_source: PerSource = None,
    own_baseline: OwnBaseline = False,
    variants: Variants = None,
    without: Without = "",
    leave_one_out: LeaveOneOut = False,
    most_above: MostAbove = 0.75,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Replay measured surfaces through the real policies and score them by the true table.

    Every tuner starts from the baseline, under the same noise, and deploys a setting after each
    budget. Captured is the share of the best possible saving; 0 where what is deployed breaks the
    limit.
    """
    from tests.bench.contest.contest import narrowed
    from tests.bench.contest.surfaces import load_problems, remarks

    choosing = Choosing(
        variants=variants, without=without, leave_one_out=leave_one_out, most_above=most_above
    )
    terms = contest.terms_of(tuners, budgets, slack, noise, seeds, own_baseline, choosing)
    telling = contest.telling(jobs, plot, output, as_json)
    problems = narrowed(load_problems(folder), terms, contest.names("sources", sources), per_source)
    for remark in remarks(folder):
        typer.echo(remark, err=True)
    contest.compete(problems, terms, telling)


def made_up(
    tuners: Tuners = EVERY_TUNER,
    seed: Annotated[int, typer.Option(help="Which surfaces are made up.")] = 0,
    surfaces: Annotated[
        int, typer.Option(min=1, help="How many, dealt to the kinds in turn.")
    ] = 39,
    flat: Annotated[
        bool, typer.Option("--flat", help="Only surfaces without a saving, as controls.")
    ] = False,
    budgets: Budgets = "5,8,12,20",
    slack: Slack = "1.1,1.25",
    noise: Noise = 0.02,
    seeds: Seeds = 5,
    jobs: Jobs = 2,
    sources: Sources = "",
    per_source: PerSource = None,
    own_baseline: OwnBaseline = False,
    variants: Variants = None,
    without: Without = "",
    leave_one_out: LeaveOneOut = False,
    most_above: MostAbove = 0.75,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Judge tuners on made-up surfaces: formulas that no tuner knows, and no measured data.

    Queues that collapse, sockets, tiles, throttling, rooflines, fine ladders, serving, runtime knobs
    with an accuracy to keep, switches; knobs with no or wrong names; wrong standard errors. Each kind
    is a source of its own.
    """
    from tests.bench.contest.contest import narrowed
    from tests.bench.made_up.flat import flat as without_saving
    from tests.bench.made_up.kinds import made_up as generated

    choosing = Choosing(
        variants=variants, without=without, leave_one_out=leave_one_out, most_above=most_above
    )
    terms = contest.terms_of(tuners, budgets, slack, noise, seeds, own_baseline, choosing)
    telling = contest.telling(jobs, plot, output, as_json, seed)
    made = (without_saving if flat else generated)(seed, surfaces)
    problems = narrowed(made, terms, contest.names("sources", sources), per_source)
    contest.compete(problems, terms, telling)
