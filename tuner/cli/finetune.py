"""`jouletune finetune admit`: whether fine-tuning may start beside inference, by measured windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from tuner.core import Limit

commands = typer.Typer()


@commands.command("admit")
def admit_(
    windows: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV of measured windows: batch_size, the metric, finetuning_gflop, "
            "finetuning_flop_per_byte.",
        ),
    ],
    constraint: Annotated[
        str, typer.Option(metavar="TEXT", help='The SLO: "latency_p99_ms <= 700".')
    ],
    gflop: Annotated[float, typer.Option(help="10⁹ operations of one fine-tuning step.")],
    flop_per_byte: Annotated[float, typer.Option(help="Its operations per byte moved.")],
    batch: Annotated[int, typer.Option(metavar="B", help="Batch size of the inference.")],
    as_json: AsJson = False,
) -> None:
    """Say whether a fine-tuning request may start now: exit code 0 if so, 1 if not.

    It may where the upper 95 % bound of the latency predicted beside it keeps the limit. What the
    windows do not tell is not admitted. Start one request after another, never two at once.
    """
    from policies.polythrottle.admission import Demand, Mix, admit
    from tuner.cli.output import echo_json
    from tuner.profiling.finetuning import read_windows

    limit = _limit(constraint)
    samples = read_windows(windows, limit.metric)
    mix = Mix(Demand(), batch, Demand(gflop, flop_per_byte))
    answer = admit(samples, mix, limit, running=False)
    if as_json:
        echo_json(answer)
    else:
        word = "admitted" if answer.admitted else "not admitted"
        typer.echo(f"{word}: {answer.why} ({len(samples)} windows)")
    if not answer.admitted:
        raise typer.Exit(1)


def _limit(text: str) -> Limit:
    """Return an absolute constraint as a limit. Raises ConstraintSyntax, InvalidInput."""
    from tuner.core import Constraint, InvalidInput, Limit

    constraint = Constraint.parse(text)
    if constraint.relative:
        raise InvalidInput(
            f"{text!r} is relative to a baseline, which a table of windows does not have",
            hint="give the limit itself: latency_p99_ms <= 700",
        )
    return Limit(constraint.metric, constraint.op, constraint.bound)
