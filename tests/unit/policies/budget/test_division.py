"""The division of watts: floors first, then limits by priority, then nearly the best throughput."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import linprog

from policies.budget.division import BudgetMember, Division, divide
from tests.errors import raised
from tuner.core import InvalidInput


def member(rng: random.Random, name: str, *, limits: bool = True) -> BudgetMember:
    """Return a device with a curve that may be concave, convex or stepped in parts."""
    floor = float(rng.randint(60, 150))
    most = floor + rng.randint(40, 250)
    count, bend = rng.randint(3, 12), rng.choice([0.4, 0.7, 1.0, 1.6])
    watts = sorted(rng.uniform(0.7 * floor, 1.1 * most) for _ in range(count))
    front = tuple((w, (w / most) ** bend * rng.uniform(0.85, 1.0) * 50.0) for w in watts)
    needs = rng.uniform(0.9 * floor, 1.1 * most) if limits and rng.random() < 0.7 else None
    return BudgetMember(name, floor, most, front, needs, rng.randint(0, 2))


def group(rng: random.Random, count: int, *, limits: bool = True) -> list[BudgetMember]:
    return [member(rng, f"m{n}", limits=limits) for n in range(count)]


def budget(rng: random.Random, members: Sequence[BudgetMember]) -> float:
    floors = sum(m.floor_w for m in members)
    return floors + rng.uniform(0.05, 0.95) * (sum(m.most_w for m in members) - floors)


def worth(members: Sequence[BudgetMember], division: Division) -> float:
    return math.fsum(m.share(division.caps_w[m.name]) for m in members)


def uniform(members: Sequence[BudgetMember], budget_w: float) -> dict[str, float]:
    """Return uniform caps: the same share of each device's highest cap, but at least its floor."""
    low, high = 0.0, 1.0
    for _ in range(60):
        part = (low + high) / 2.0
        caps = {m.name: max(m.floor_w, part * m.most_w) for m in members}
        low, high = (part, high) if math.fsum(caps.values()) <= budget_w else (low, part)
    return {m.name: max(m.floor_w, low * m.most_w) for m in members}


def brute_force(members: Sequence[BudgetMember], budget_w: float) -> float:
    """Return the highest throughput of all caps in whole watts, by dynamic programming."""
    spare = int(budget_w - sum(m.floor_w for m in members))
    best = np.zeros(spare + 1)
    for m in members:
        values = np.array([m.share(m.floor_w + w) for w in range(int(m.most_w - m.floor_w) + 1)])
        best = np.array([
            max(best[s - w] + values[w] for w in range(min(s, len(values) - 1) + 1))
            for s in range(spare + 1)
        ])  # fmt: skip
    return float(best[-1])


@pytest.mark.parametrize("seed", range(60))
def test_small_groups_are_within_three_percent_of_every_whole_watt(seed: int) -> None:
    rng = random.Random(seed)
    members = group(rng, rng.randint(1, 4), limits=False)
    budget_w = budget(rng, members)
    assert worth(members, divide(members, budget_w)) >= 0.97 * brute_force(members, budget_w)


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_members_are_within_three_percent_of_the_linear_bound(seed: int) -> None:
    rng = random.Random(seed)
    members = group(rng, 200, limits=False)
    budget_w = budget(rng, members)
    points = [(n, w, share) for n, m in enumerate(members) for w, share in m.curve]
    picks = np.zeros((len(members), len(points)))
    for column, (n, _, _) in enumerate(points):
        picks[n, column] = 1.0
    bound = -linprog(
        [-share for *_, share in points],
        A_ub=[[w for _, w, _ in points]],
        b_ub=[budget_w],
        A_eq=picks,
        b_eq=np.ones(len(members)),
    ).fun
    assert worth(members, divide(members, budget_w)) >= 0.97 * bound


@pytest.mark.parametrize("seed", range(200))
def test_the_budget_and_the_floors_are_kept(seed: int) -> None:
    rng = random.Random(seed)
    members = [m if rng.random() < 0.8 else bare(m) for m in group(rng, rng.randint(1, 30))]
    budget_w = budget(rng, members)
    division = divide(members, budget_w)
    assert math.fsum(division.caps_w.values()) <= budget_w + 1e-6
    for m in members:
        assert m.floor_w <= division.caps_w[m.name] <= m.most_w + 1e-9
    assert division.missing_w == 0.0


@pytest.mark.parametrize("seed", range(200))
def test_no_more_limits_are_broken_than_by_capping_all_alike(seed: int) -> None:
    rng = random.Random(seed)
    members = [
        BudgetMember(m.name, m.floor_w, m.most_w, m.front, m.needs_w)
        for m in group(rng, rng.randint(2, 40))
    ]
    budget_w = budget(rng, members)
    alike = uniform(members, budget_w)
    broken = sum(not m.kept(alike[m.name]) for m in members)
    assert len(divide(members, budget_w).broken) <= broken


def bare(member: BudgetMember) -> BudgetMember:
    return BudgetMember(member.name, member.floor_w, member.most_w)


LINE = ((100.0, 1.0), (300.0, 3.0))


def test_the_lowest_priorities_give_first() -> None:
    members = [
        BudgetMember(name, 100.0, 300.0, LINE, 200.0, priority)
        for name, priority in (("batch", 0), ("chat", 2), ("search", 1))
    ]
    assert [divide(members, w).broken for w in (600.0, 599.0, 499.0, 399.0)] == [
        (),
        ("batch",),
        ("search", "batch"),
        ("chat", "search", "batch"),
    ]


def test_members_without_a_front_share_uniformly_and_are_named() -> None:
    members = [BudgetMember("a", 100.0, 300.0), BudgetMember("b", 100.0, 200.0)]
    division = divide(members, 350.0)
    assert division.caps_w == {"a": 200.0, "b": 150.0}
    assert division.uniform == ("a", "b")


def test_below_the_floors_all_are_at_their_floor_and_the_missing_watts_are_known() -> None:
    members = [BudgetMember("a", 100.0, 300.0, LINE), BudgetMember("b", 100.0, 300.0)]
    division = divide(members, 150.0)
    assert division.caps_w == {"a": 100.0, "b": 100.0}
    assert division.missing_w == 50.0


def test_watts_for_a_limit_come_before_throughput() -> None:
    steep = BudgetMember("steep", 100.0, 300.0, ((100.0, 1.0), (300.0, 100.0)))
    limited = BudgetMember("limited", 100.0, 300.0, LINE, 250.0)
    assert divide([steep, limited], 400.0).caps_w == {"steep": 150.0, "limited": 250.0}


def test_a_limit_that_no_cap_keeps_takes_no_watts() -> None:
    lost = BudgetMember("lost", 100.0, 300.0, LINE, math.inf, 9)
    kept = BudgetMember("kept", 100.0, 300.0, LINE, 290.0)
    division = divide([lost, kept], 400.0)
    assert division.broken == ("lost",)
    assert division.caps_w["kept"] >= 290.0


def test_the_same_group_is_divided_alike_every_time() -> None:
    rng = random.Random(4)
    members = group(rng, 12)
    budget_w = budget(rng, members)
    first = divide(members, budget_w)
    for order in itertools.islice(itertools.permutations(members), 3):
        assert divide(members, budget_w) == first
        assert math.fsum(divide(order, budget_w).caps_w.values()) <= budget_w + 1e-6


def test_a_floor_above_the_highest_cap_is_refused_by_name() -> None:
    with raised(InvalidInput, "a"):
        BudgetMember("a", 301.0, 300.0)
