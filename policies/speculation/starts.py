"""Choose the table that one start of an engine profiles: one cell for each batch, not one cell alone.

vLLM (0.33.0: vllm/v1/spec_decode/dynamic/utils.py) and SGLang (0.5.23:
sglang/srt/speculative/adaptive_spec_params.py) read a table of lengths by batch at their start alone.
Neither reads a table by batch and context length. A start takes minutes, a window seconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.speculation.choice import next_cell
from policies.speculation.grid import Cell, Choice, Draft, chosen
from policies.speculation.surface import CostSurface
from tuner.core import Past, Plan, Role, Row, Setting, Trial, TrialState

MOST_FAILED = 2
"""After this number of failed trials with tables each cell has a start of its own."""


def shares_starts(past: Past, by: str) -> bool:
    """Return whether a length takes a restart, and the engine takes a table by the signal `by`."""
    restarts = any(
        k.cost.restart for k in past.study.space.knobs if k.role is Role.SPECULATION_LENGTH
    )
    followed = any(signal.name == by and signal.followed for signal in past.study.signals)
    failed = sum(t.plan is not None and t.state is TrialState.FAILED for t in past.trials)
    return restarts and followed and failed < MOST_FAILED


def cells_beside(
    outlook: CostSurface,
    first: Cell,
    cells: Collection[Cell],
    noise: float,
    out: Collection[Cell],
) -> list[Cell]:
    """Return the cells to measure beside the first, best first: one for each other batch, with its draft.

    Each is the best next cell once those before it are measured, for any result of them.
    """
    picked, last = list[Cell](), first
    while True:
        column = outlook.cov[:, outlook.index[last]]
        seen = np.outer(column, column) / (column[outlook.index[last]] + noise**2)
        outlook = replace(outlook, cov=outlook.cov - seen)
        taken = {cell.batch for cell in (first, *picked)}
        left = [c for c in cells if c.batch not in taken and c.choice.draft == first.choice.draft]
        best = next_cell(outlook, left, noise, out)
        if best is None:
            return picked
        last = best[0]
        picked.append(last)


def one_draft(outlook: CostSurface, out: Collection[Cell]) -> Draft:
    """Return the draft with the least costs over all batches, each at the best of its own lengths.

    A start of the engine has one draft.
    """

    def cost(draft: Draft) -> float:
        left = set(outlook.cells) - set(out) - by_others(outlook.cells, draft)
        batches = {cell.batch for cell in left}
        return sum(
            min(float(outlook.mean[outlook.index[c]]) for c in left if c.batch == batch)
            for batch in batches
        )

    return min(dict.fromkeys(cell.choice.draft for cell in outlook.cells), key=cost)


def by_others(cells: Collection[Cell], draft: Draft) -> frozenset[Cell]:
    """Return the cells with drafting by another draft."""
    return frozenset(c for c in cells if c.choice.length and c.choice.draft != draft)


def table(cells: Sequence[Cell], settings: Mapping[Choice, Setting], by: str) -> Plan | None:
    """Return the table with these cells, each for the batches above the one before; None for one cell."""
    if len(cells) < 2:
        return None
    ordered = sorted(cells, key=lambda cell: cell.batch)
    rows = [Row(cell.batch + 0.5, settings[cell.choice], at=float(cell.batch)) for cell in ordered]
    rows[-1] = replace(rows[-1], below=math.inf)
    return Plan(tuple(rows), by)


def last_table(
    trials: Sequence[Trial], settings: Mapping[Choice, Setting]
) -> Iterator[tuple[Cell, Plan]]:
    """Yield the cells of the table that the engine was last started with, each with the table."""
    last = trials[-1]
    if last.plan is None or last.state is TrialState.FAILED:
        return
    for row in last.plan.rows:
        choice = chosen(settings, row.setting)
        if choice is not None and row.at is not None:
            yield Cell(int(row.at), choice), last.plan
