"""`jouletune finetune admit`: whether fine-tuning may start beside inference, by measured windows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from policies.polythrottle.admission import Demand, Mix, admit
from tuner.cli.answers import Answer, tells
from tuner.core import Constraint, InvalidInput, Limit
from tuner.profiling.finetuning import read_windows


@tells
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
    gflop: Annotated[float, typer.Option(help="GFLOP of one fine-tuning step.")],
    flop_per_byte: Annotated[float, typer.Option(help="Its FLOP per byte moved.")],
    batch: Annotated[int, typer.Option(metavar="B", help="Batch size of the inference.")],
) -> Answer:
    """Say whether a fine-tuning request may start now: exit code 0 if so, 1 if not.

    It may where the upper 95 % bound of the latency predicted beside it keeps the limit. What the
    windows do not tell is not admitted. Start one request after another, never two at once.
    """
    limit = _limit(constraint)
    samples = read_windows(windows, limit.metric)
    mix = Mix(Demand(), batch, Demand(gflop, flop_per_byte))
    answer = admit(samples, mix, limit, running=False)
    word = "admitted" if answer.admitted else "not admitted"
    told = f"{word}: {answer.why} ({len(samples)} windows)"
    return Answer(answer, told, failed=not answer.admitted)


def _limit(text: str) -> Limit:
    """Return an absolute constraint as a limit. Raises ConstraintSyntax, InvalidInput."""
    constraint = Constraint.parse(text)
    if constraint.relative:
        raise InvalidInput(
            f"{text!r} is relative to a baseline, which a table of windows does not have",
            hint="give the limit itself: latency_p99_ms <= 700",
        )
    return Limit(constraint.metric, constraint.op, constraint.bound)
