"""`python -m tests.bench admission`: fine-tuning admitted beside inference, made up and live here."""

from __future__ import annotations

import statistics
from typing import Annotated

import typer


def admission(
    pairs: Annotated[int, typer.Option(min=4, help="Made-up pairs.")] = 48,
    rounds: Annotated[int, typer.Option(min=0, help="Live windows of each arm; 0: none.")] = 36,
    limit_ms: Annotated[
        float, typer.Option(min=0.0, help="The live p99 limit; 0: twice the median.")
    ] = 0.0,
) -> None:
    """Pace fine-tuning by the latency beside it: on made-up pairs, then on a real one; one JSON."""
    from tests.bench.admission.live import live
    from tests.bench.admission.made_up import KINDS, judged
    from tests.bench.result import header
    from tuner.cli.output import console, echo_json

    with console(stderr=True).status("made-up pairs") as status:
        comparisons = [judged(seed) for seed in range(pairs)]
        measured = live(rounds, limit_ms, status.update) if rounds else None
    made_up = []
    for kind in KINDS:
        own = [one for one in comparisons if one.kind == kind]
        could = [one for one in own if one.oracle > 0.0]
        made_up.append(
            {
                "kind": kind,
                "pairs": len(own),
                "above": statistics.fmean(one.above for one in own),
                "above_worst": max(one.above for one in own),
                "could": len(could),
                "admitted": statistics.fmean(min(1.0, one.ran / one.oracle) for one in could)
                if could
                else None,
            }
        )
    echo_json({**header(), "made_up": made_up, "live": measured})
