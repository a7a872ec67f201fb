"""Divide a group's watts by the worth of a watt at each member: limits first, then throughput.

Every member keeps its floor. The watts above the floors go first to the limits of studies: the highest
priority first, and within a priority the cheapest first, so that as many limits as possible are kept. The
remaining watts go to the members where a watt adds the most throughput: first along the concave envelope of
each member's curve, then by exchanges on the curves themselves. Throughput is a share of the member's
throughput at its highest cap, since items of different workloads have no common unit. This is the
multiple-choice knapsack problem (Sinha and Zoltners, 1979), whose linear relaxation the envelope solves;
the exchanges are our own.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.errors import InvalidInput

CLOSE_W = 1e-9
MOST_EXCHANGING = 24
"""Groups with more members exchange no watts between pairs: the envelope is within 1 % of the best
there."""


@dataclass(frozen=True)
class BudgetMember:
    """A device of a group, with its range of caps and its throughput at each.

    `front` has pairs of measured watts and throughput, in any unit; empty if nothing was measured.
    `needs_w` is the least cap at which all limits of its study are kept: None if it has no limit, `inf` if
    no cap keeps them. A member of higher `priority` keeps its limits longer. A `lent` member is being
    measured: it gets the watts that the limits of the others leave.

    Raises:
        InvalidInput: the floor is negative or above the highest cap, or the highest cap is not finite.
    """

    name: str
    floor_w: float
    most_w: float
    front: tuple[tuple[float, float], ...] = ()
    needs_w: float | None = None
    priority: int = 0
    lent: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor_w <= self.most_w < math.inf:
            raise InvalidInput(
                f"{self.name} cannot have a floor of {self.floor_w:g} W below {self.most_w:g} W",
                hint="set the floor in the range of its power limit",
            )

    @cached_property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """The pairs of watts and share of full throughput, rising, from the floor to the highest cap.

        Between two measured points the share is linear. Below the first point it falls to 0 at 0 W; above
        the last point it stays the same.
        """
        points = [(0.0, 0.0)]
        for watts, rate in sorted(self.front):
            if rate > points[-1][1]:
                if watts <= points[-1][0] + CLOSE_W:
                    points.pop()
                points.append((watts, rate))
        top = _on(points, self.most_w)
        if top <= 0.0:
            return ((self.floor_w, 0.0),)
        inner = [p for p in points if self.floor_w + CLOSE_W < p[0] < self.most_w - CLOSE_W]
        ends = [(self.floor_w, _on(points, self.floor_w)), *inner, (self.most_w, top)]
        shares = [(watts, rate / top) for watts, rate in ends]
        while len(shares) > 1 and shares[-1][1] <= shares[-2][1]:
            shares.pop()
        return tuple(shares)

    def share(self, cap_w: float) -> float:
        """Return the share of the member's full throughput at a cap in watts."""
        return _on(self.curve, cap_w)

    def kept(self, cap_w: float) -> bool:
        """Return whether a cap in watts keeps all limits of the member's study."""
        return self.needs_w is None or cap_w >= self.needs_w - CLOSE_W


@dataclass(frozen=True, slots=True)
class Division:
    """A cap in watts for each member, by name.

    `broken` members cannot keep their limits; those of the highest priority are first. `uniform` members
    have no front: each gets the same part of its range. `missing_w` is the power in watts by which the
    floors exceed the budget; 0 if they fit.
    """

    caps_w: Mapping[str, float]
    broken: tuple[str, ...] = ()
    uniform: tuple[str, ...] = ()
    missing_w: float = 0.0


def divide(members: Sequence[BudgetMember], budget_w: float) -> Division:
    """Return each member's cap in watts. The sum is at most the budget if the floors fit in the budget."""
    caps = {m.name: m.floor_w for m in members}
    left = budget_w - math.fsum(caps.values())
    uniform = tuple(m.name for m in members if not m.front)
    if left >= 0.0:
        left = _lend(members, caps, _keep_limits(members, caps, left))
        _share_uniformly(members, caps, left)
        _raise_by_worth(members, caps, budget_w)
    order = sorted(members, key=lambda m: -m.priority)
    broken = tuple(m.name for m in order if not m.kept(caps[m.name]))
    return Division(caps, broken, uniform, max(0.0, -left))


def _keep_limits(members: Sequence[BudgetMember], caps: dict[str, float], left: float) -> float:
    """Raise as many members as possible to the cap that keeps their limits; return the remaining watts."""
    wanting = [
        (-m.priority, m.needs_w - m.floor_w, m.name)
        for m in members
        if m.needs_w is not None and m.floor_w < m.needs_w <= m.most_w
    ]
    for _, more, name in sorted(wanting):
        if more <= left + CLOSE_W:
            caps[name] += more
            left -= more
    return max(0.0, left)


def _lend(members: Sequence[BudgetMember], caps: dict[str, float], left: float) -> float:
    """Raise the members that are being measured as far as possible; return the remaining watts."""
    for member in members:
        if member.lent:
            more = min(left, member.most_w - caps[member.name])
            caps[member.name] += more
            left -= more
    return left


def _share_uniformly(members: Sequence[BudgetMember], caps: dict[str, float], left: float) -> None:
    """Give members without a front the part of their range that they would get if all got the same part."""
    span = math.fsum(m.most_w - caps[m.name] for m in members)
    part = min(1.0, left / span) if span > 0.0 else 0.0
    for member in members:
        if not member.front:
            caps[member.name] += part * (member.most_w - caps[member.name])


def _raise_by_worth(
    members: Sequence[BudgetMember], caps: dict[str, float], budget_w: float
) -> None:
    """Give the remaining watts to the members with a front where a watt adds the most throughput."""
    measured = [m for m in members if m.front]
    left = budget_w - math.fsum(caps.values())
    base = dict(caps)
    steps = [
        (-(after[1] - before[1]) / (after[0] - before[0]), after[0], m.name)
        for m in measured
        for before, after in itertools.pairwise(_envelope(m, base[m.name]))
    ]
    heapq.heapify(steps)
    while steps and left > CLOSE_W:
        _, watts, name = heapq.heappop(steps)
        spent = min(watts - caps[name], left)
        caps[name] += spent
        left -= spent
    if len(measured) <= MOST_EXCHANGING:
        _exchange(measured, base, caps, budget_w)


def _exchange(
    members: Sequence[BudgetMember],
    base: Mapping[str, float],
    caps: dict[str, float],
    budget_w: float,
) -> None:
    """Move watts between two members while this adds throughput; no member goes below its base.

    The sum of a pair's shares is piecewise linear in the watts of one member, so its maximum is at a corner
    of one of the two curves.
    """
    for _ in range(len(members)):
        gained = 0.0
        spare = budget_w - math.fsum(caps.values())
        if len(members) == 1:
            (only,) = members
            caps[only.name] = min(only.most_w, caps[only.name] + max(0.0, spare))
            return
        for one, other in itertools.combinations(members, 2):
            spare = max(0.0, spare)
            gained += _best_pair(one, other, base, caps, spare)
            spare = budget_w - math.fsum(caps.values())
        if gained <= 1e-6:
            return


def _best_pair(
    one: BudgetMember,
    other: BudgetMember,
    base: Mapping[str, float],
    caps: dict[str, float],
    spare_w: float,
) -> float:
    """Divide the watts of two members, and the spare watts, in the best way; return the added share."""
    total = caps[one.name] + caps[other.name] + spare_w
    low = max(base[one.name], total - other.most_w)
    high = min(one.most_w, total - base[other.name])
    corners = {w for w, _ in one.curve} | {total - w for w, _ in other.curve} | {low, high}
    before = one.share(caps[one.name]) + other.share(caps[other.name])
    best, best_w = before + 1e-9, None
    for watts in sorted(corners):
        if low - CLOSE_W <= watts <= high + CLOSE_W:
            worth = one.share(watts) + other.share(total - watts)
            if worth > best:
                best, best_w = worth, min(max(watts, low), high)
    if best_w is None:
        return 0.0
    caps[one.name] = best_w
    caps[other.name] = min(other.most_w, total - best_w)
    return best - before


def _envelope(member: BudgetMember, from_w: float) -> list[tuple[float, float]]:
    """Return the least concave curve above a member's curve, from a cap on, as watts and shares."""
    hull: list[tuple[float, float]] = []
    above = [p for p in member.curve if p[0] > from_w + CLOSE_W]
    for point in [(from_w, member.share(from_w)), *above]:
        while len(hull) > 1 and _below(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _below(
    before: tuple[float, float], point: tuple[float, float], after: tuple[float, float]
) -> bool:
    """Return whether a point lies on or below the line between its neighbours."""
    (x0, y0), (x1, y1), (x2, y2) = before, point, after
    return (y1 - y0) * (x2 - x0) <= (y2 - y0) * (x1 - x0)


def _on(points: Sequence[tuple[float, float]], at: float) -> float:
    """Return the value at `at` of the line through some points; beyond the ends, the value at the end."""
    place = bisect_right(points, (at, math.inf))
    if place == 0:
        return points[0][1]
    if place == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[place - 1], points[place]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
