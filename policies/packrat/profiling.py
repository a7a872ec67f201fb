"""Select the points of the profile that still matter: bounds from the others cannot rule them out.

Packrat profiles every number of threads with every power of two of items: 176 points instead of
16,384 on 16 cores. Most of these points are in no best packing, and a few points suffice to rule them out:

- on the same threads, more items never take less time;
- on the same items, fewer threads are faster by at most a fifth per halving. They should not be faster at
  all, but are: Inception-v3 at batch 1 gains 15 % from 8 threads instead of 16;
- the speed-up from more threads is at most the ratio of their numbers.

Only numbers of threads that divide the largest give bounds: GPT-2 takes three times as long on 15
threads as on 8 or 16, so 15 threads give no information about 8 or 16. The bounds, the fifth and this rule
are our choice. On the three profiles that the paper's authors published (ResNet-50, GPT-2, Inception-v3 on
16 threads) they skip 25 to 58 % of the points that equal instances can use, and the resulting packing is at
most 0.5 % slower than with all points. A packing of mixed shapes may still need a skipped point.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from policies.packrat.packing import Group
from policies.packrat.profile import Cell, ProfilePoint
from tuner.core import Z95

FASTER_PER_HALVING = 0.2
MARGIN = 0.02
"""The least predicted gain of a packing, as a share, for which a window is measured."""


def open_points(
    packings: Sequence[Group], measured: Mapping[Cell, ProfilePoint], closed: Collection[Cell] = ()
) -> list[Cell]:
    """Return the cells to measure, the next one first; empty if the profile is good enough.

    `packings` are all candidates, of equal instances; `measured` are the points so far, `closed` the cells
    that cannot be measured. The order is by threads, then by batch size, ascending: the times of small
    instances rule out the most cells.
    """
    best: dict[int, float] = {}
    for group in packings:
        point = measured.get((group.threads, group.batch))
        if point is not None:
            items = group.instances * group.batch
            best[items] = min(point.latency_s, best.get(items, math.inf))
    cores = max((g.threads for g in packings), default=1)
    teaching = {cell: point for cell, point in measured.items() if cores % cell[0] == 0}
    points: set[Cell] = set()
    for group in packings:
        cell = (group.threads, group.batch)
        if cell in measured or cell in closed or cell in points:
            continue
        target = best.get(group.instances * group.batch, math.inf)
        if lower_bound(teaching, cell) < (1.0 - MARGIN) * target:
            points.add(cell)
    return sorted(points)


def lower_bound(measured: Mapping[Cell, ProfilePoint], cell: Cell) -> float:
    """Return a lower bound on the seconds of a cell, from the measured cells."""
    threads, items = cell
    bound = 0.0
    for (other, fewer), point in measured.items():
        if fewer > items:
            continue
        least = point.latency_s - Z95 * point.stderr_s
        if other > threads:
            least *= (1.0 - FASTER_PER_HALVING) ** math.log2(other / threads)
        elif other < threads:
            least *= other / threads
        bound = max(bound, least)
    return bound
