"""Two exact dynamic programmes over threads × items: least bottleneck, and least sum of costs.

Both choose a multiset of cells ⟨threads, items⟩ whose threads fit and whose items make up the
batch; cores may stay idle. The recurrence of Packrat's prototype, opt[t, b] = min max(opt[t−t',
b−b'], L[t', b']), takes O(T² · B · log B) steps and forbids idle cores. Since the bottleneck is one
of the profile's latencies, we bisect over those instead and compute each time the fewest threads
that suffice. That is a sum of integers: exact, and its back-pointers compare no floats.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from policies.packrat.profile import Cell

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def least_bottleneck(
    costs: Mapping[Cell, float], threads: int, batch: int, most: int, *, pad: bool
) -> list[Cell] | None:
    """Return the cells whose greatest cost is least; None if no cells make up the batch.

    There are at most `most` cells, with at most `threads` threads in all, and exactly `batch` items; with
    `pad`, at least `batch` items. Of equal solutions the one with the fewest cells wins, then the one with
    the fewest threads.
    """
    levels = sorted(set(costs.values()))

    def at(level: float) -> list[Cell] | None:
        return _fewest(_needs(costs, level), threads, batch, most, pad=pad)

    if not levels or at(levels[-1]) is None:
        return None
    return at(levels[bisect.bisect_left(levels, True, key=lambda level: at(level) is not None)])


def _needs(costs: Mapping[Cell, float], level: float) -> dict[int, int]:
    """Return for each batch size the fewest threads whose cost is at most `level`; more do not help."""
    needs: dict[int, int] = {}
    for (threads, items), cost in costs.items():
        if cost <= level:
            needs[items] = min(threads, needs.get(items, threads))
    return needs


def _fewest(
    needs: Mapping[int, int], threads: int, batch: int, most: int, *, pad: bool
) -> list[Cell] | None:
    """Return the fewest cells, on the fewest threads, that make up the batch; None if no cells do.

    Layer n has, for each number of items, the fewest threads on which n cells hold that number of items.
    """
    import numpy as np  # imported with the first plan only

    size = batch + (max(needs, default=0) - 1 if pad else 0)
    layers = [np.full(size + 1, threads + 1, dtype=np.int32)]
    layers[0][0] = 0
    while len(layers) <= most and layers[-1].min() <= threads:
        layer = np.full(size + 1, threads + 1, dtype=np.int32)
        for items, own in needs.items():
            if items <= size:
                np.minimum(layer[items:], layers[-1][: size + 1 - items] + own, out=layer[items:])
        layers.append(layer)
        end = batch + int(layer[batch:].argmin())
        if layer[end] <= threads:
            return list(_walk(layers, needs, end))
    return None


def _walk(
    layers: Sequence[NDArray[np.int32]], needs: Mapping[int, int], end: int
) -> Iterator[Cell]:
    """Yield the cells that lead to `end` items in the last layer, the largest first."""
    for layer, before in zip(reversed(layers[1:]), reversed(layers[:-1]), strict=True):
        items = next(
            items
            for items in sorted(needs, reverse=True)
            if items <= end and before[end - items] + needs[items] == layer[end]
        )
        yield needs[items], items
        end -= items


def least_sum(
    costs: Mapping[Cell, float], threads: int, most: int, span: tuple[int, int]
) -> list[Cell] | None:
    """Return the cells with the least sum of costs; None if no cells reach the span.

    There are at most `most` cells, with at most `threads` threads in all; their items add up to a number in
    `span`, both ends included. Costs may be negative. The time is O(T · B) for each cell that no cell with
    as many items beats in both threads and cost; it is `most` times that if `most` is less than the
    threads.
    """
    import numpy as np

    first, size = span
    options = list(_undominated(costs, size))
    count = 1 if most < min(threads, size) else 0  # whether the cells are counted, too
    shape = (most * count + 1, size + 1)
    best = [np.full(shape, np.inf)]
    best[0][0, 0] = 0.0
    chosen = [np.full(shape, -1, dtype=np.int16)]
    for within in range(1, threads + 1):
        value, choice = best[-1].copy(), np.full(shape, -1, dtype=np.int16)
        for k, ((own, items), cost) in enumerate(options):
            if own > within:
                continue
            reached = best[within - own][: shape[0] - count, : size + 1 - items] + cost
            better = reached < value[count:, items:]
            value[count:, items:][better] = reached[better]
            choice[count:, items:][better] = k
        best.append(value)
        chosen.append(choice)
    ends = best[threads][:, first:]
    if not np.isfinite(ends).any():
        return None
    n, end = (int(i) for i in np.unravel_index(int(ends.argmin()), ends.shape))
    cells: list[Cell] = []
    at, end = threads, end + first
    while end > 0:
        k = int(chosen[at][n, end])
        if k < 0:
            at -= 1
            continue
        (own, items), _ = options[k]
        cells.append((own, items))
        at, n, end = at - own, n - count, end - items
    return cells


def _undominated(costs: Mapping[Cell, float], size: int) -> Iterator[tuple[Cell, float]]:
    """Yield the cells that cost less than every cell with as many items and at most as many threads."""
    cheapest: dict[int, float] = {}
    for (threads, items), cost in sorted(costs.items()):
        if items <= size and cost < cheapest.get(items, float("inf")):
            cheapest[items] = cost
            yield (threads, items), cost
