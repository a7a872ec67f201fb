"""The standings as a picture: captured savings and violations over the budget, one column per slack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.bench.contest.score import ScoreRow

INCHES = 4.5
DOTS_PER_INCH = 150


def draw(rows: Sequence[ScoreRow], path: Path) -> None:
    """Write a PNG picture of the rows. Error bars are standard errors."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    slacks = sorted({r.slack for r in rows})
    figure = Figure(figsize=(INCHES * max(1, len(slacks)), 1.6 * INCHES), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, max(1, len(slacks)), sharex=True, sharey="row", squeeze=False)
    for column, slack in enumerate(slacks):
        upper, lower = axes[0][column], axes[1][column]
        for tuner in dict.fromkeys(r.tuner for r in rows):
            line = [r for r in rows if r.tuner == tuner and r.slack == slack]
            budgets = [r.budget for r in line]
            doubts = [r.captured_stderr or 0.0 for r in line]
            upper.errorbar(
                budgets, [r.captured for r in line], doubts, label=tuner, marker="o", capsize=2
            )
            lower.plot(budgets, [100.0 * r.violations for r in line], marker="o", label=tuner)
        upper.set_title(f"limit {slack:g} × baseline")
        upper.grid(alpha=0.3)
        lower.grid(alpha=0.3)
        lower.set_xlabel("trials")
        lower.set_xticks(sorted({r.budget for r in rows}))
        lower.set_ylim(bottom=0.0)
    axes[0][0].set_ylabel("captured share of the best saving")
    axes[1][0].set_ylabel("tried settings above the limit, %")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper")
    figure.savefig(path, format="png", dpi=DOTS_PER_INCH)
