"""Tokens per second over the length, a line for each number of requests, and the plan's choice."""

from __future__ import annotations

from pathlib import Path

from tests.bench.speculation.run import SpeculationResult
from tuner.core import StoreError


def draw(path: Path, result: SpeculationResult) -> None:
    """Draw a result into a file. Raises StoreError: it cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for batch in result.batches:
        lengths = sorted(batch.fixed)
        means, errors = zip(*map(batch.rate, lengths), strict=True)
        line = axes.errorbar(
            lengths, means, errors, marker="o", markersize=3, capsize=2, linewidth=1
        )
        colour = line.lines[0].get_color()
        axes.plot(batch.planned, batch.rate(batch.planned)[0], "s", markersize=9, color=colour)
        axes.annotate(f"{batch.batch} requests", (lengths[-1], means[-1]), (5, -3),
                      textcoords="offset points", color=colour, fontsize=8)  # fmt: skip
    axes.plot([], [], "s", color="grey", label="chosen by the plan")
    axes.set_yscale("log")
    axes.set_xlabel("speculation length (0: off)")
    axes.set_ylabel("tokens per second")
    axes.set_title(f"Reference engine, draft {result.draft}")
    axes.margins(x=0.12)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize=8)
    try:
        figure.savefig(path)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="name another file"
        ) from None
