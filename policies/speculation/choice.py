"""Choose the best length and draft at each batch, and the cell that is worth a window.

s*(b) = argmin over s ≥ 0 of [t_verify(b, s) + s · t_draft(b)] / (l(s) + 1), jointly with the draft:
the highest TAR / (K · t_draft + t_verify) (Su et al., arXiv 2310.18813; Yan et al., arXiv
2402.01528).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from policies.speculation.grid import Cell
from policies.speculation.surface import Array, CostSurface

NODES = 32
SURELY = 0.75
"""Standard errors by which drafting must beat plain decoding to be chosen: a loss costs more
than a missed gain. Chosen on synthetic decoders with seeds that no test uses (slow drafts
2000 to 2013, computing-bound ones that report throughput alone 100 to 129): at 0.5 the worst
load is at 0.959 of plain decoding, from 0.75 on none is below 0.98; each further quarter
misses up to 0.2 % of the possible gain."""


def best_at(outlook: CostSurface, batch: int, out: Collection[Cell] = ()) -> Cell:
    """Return the cheapest cell of a batch, without those in `out`.

    Raises:
        ValueError: all of them are out.
    """
    cells = [c for c in outlook.cells if c.batch == batch and c not in out]
    return min(cells, key=lambda cell: float(outlook.mean[outlook.index[cell]]))


def surely_at(outlook: CostSurface, batch: int, out: Collection[Cell] = ()) -> Cell:
    """Return the cheapest cell of a batch, the plain one unless drafting is surely cheaper.

    Raises:
        ValueError: all of them are out.
    """
    best = best_at(outlook, batch, out)
    plain = next((c for c in outlook.cells if c.batch == batch and not c.choice.length), best)
    if plain in out:
        return best
    i, j = outlook.index[best], outlook.index[plain]
    spread = outlook.cov[i, i] + outlook.cov[j, j] - 2.0 * outlook.cov[i, j]
    gain = float(outlook.mean[j] - outlook.mean[i])
    return best if gain > SURELY * math.sqrt(max(0.0, float(spread))) else plain


def next_cell(
    outlook: CostSurface, cells: Iterable[Cell], noise: float, out: Collection[Cell] = ()
) -> tuple[Cell, float] | None:
    """Return the cell whose window has the largest expected gain, and the gain over the batches.

    The knowledge gradient (Frazier et al. 2009): the expected reduction of the best cells' cost
    after a window of that noise, as shares summed over the batches with equal weights. None where
    no cell is left.
    """
    batches: dict[int, list[int]] = {}
    for cell in outlook.cells:
        if cell not in out:
            batches.setdefault(cell.batch, []).append(outlook.index[cell])
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    gains: list[tuple[float, Cell]] = []
    for cell in cells:
        at = outlook.index[cell]
        spread = outlook.cov[:, at] / math.sqrt(outlook.cov[at, at] + noise**2)
        gains.append((_gained(outlook.mean, spread, batches, nodes, weights), cell))
    if not gains:
        return None
    gain, cell = max(gains, key=lambda g: g[0])
    return cell, gain


def _gained(
    mean: Array, spread: Array, batches: Mapping[int, Sequence[int]], nodes: Array, weights: Array
) -> float:
    """Return the expected decrease of the lowest costs (logarithms), summed over the batches."""
    total = 0.0
    for rows in batches.values():
        expected = (mean[rows][:, None] + spread[rows][:, None] * nodes).min(axis=0)
        total += float(mean[rows].min() - weights @ expected)
    return total
