"""The packing is exact: it equals brute force on small tables with holes, for every question."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.packrat.interference import Interference
from policies.packrat.packing import Aim, Group, Packing, best_packing
from policies.packrat.profile import Cell, Profile, ProfilePoint
from tests.errors import raised
from tests.profiles import examples
from tuner.core import InvalidInput, MetricUnavailable

LATENCIES = st.floats(0.001, 10.0)


def profile(points: dict[Cell, float], memory_bytes: float | None = None) -> Profile:
    return Profile({cell: ProfilePoint(s) for cell, s in points.items()}, memory_bytes)


def groups(packing: Packing) -> list[tuple[int, int, int]]:
    return [(g.instances, g.threads, g.batch) for g in packing.groups]


@st.composite
def tables(draw: st.DrawFn, sizes: tuple[int, ...] = (1, 2, 4, 8)) -> Profile:
    """Any table of up to five threads, not monotonic and with holes; five threads are always covered."""
    cells = draw(
        st.lists(
            st.tuples(st.integers(1, 5), st.sampled_from(sizes)),
            min_size=1,
            max_size=14,
            unique=True,
        )
    )
    points = {
        cell: ProfilePoint(draw(LATENCIES), energy_j=draw(st.none() | st.floats(0.1, 5.0)))
        for cell in cells
    }
    points.setdefault((5, 1), ProfilePoint(draw(LATENCIES), energy_j=1.0))
    return Profile(points, memory_bytes=1.0)


def multisets(cells: list[Cell], threads: int, items: int) -> Iterator[list[Cell]]:
    """Yield every multiset of cells within a number of threads and items."""
    yield []
    for at, (own, size) in enumerate(cells):
        if own <= threads and size <= items:
            for rest in multisets(cells[at:], threads - own, items - size):
                yield [(own, size), *rest]


class Brute:
    """All packings, valued by the definition."""

    def __init__(self, table: Profile, threads: int, batch: int, slow: Interference) -> None:
        room = batch + max(b for _, b in table.points) - 1
        self.table, self.batch, self.slow = table, batch, slow
        self.all = [m for m in multisets(sorted(table.points), threads, room) if m]

    def seconds(self, chosen: list[Cell]) -> float:
        busy = sum(t for t, _ in chosen)
        return max(
            self.table.points[c].latency_s
            * (1.0 + self.slow.share * (busy - c[0]) / self.slow.cores)
            for c in chosen
        )

    def joules(self, chosen: list[Cell]) -> float:
        each = [self.table.points[c].energy_j for c in chosen]
        if any(j is None for j in each):
            return math.inf
        total = sum(b * j for (_, b), j in zip(chosen, each, strict=True) if j is not None)
        return total / self.batch

    def rate(self, chosen: list[Cell]) -> float:
        busy = sum(t for t, _ in chosen)
        return sum(
            b
            / self.table.points[t, b].latency_s
            / (1.0 + self.slow.share * (busy - t) / self.slow.cores)
            for t, b in chosen
        )

    def fitting(self, most: int, limit_s: float, mixed: bool) -> list[list[Cell]]:
        """Return the packings of exactly this many items; if there are none, those of more."""
        allowed = [
            m
            for m in self.all
            if len(m) <= most and self.seconds(m) <= limit_s and (mixed or len(set(m)) == 1)
        ]
        exact = [m for m in allowed if sum(b for _, b in m) == self.batch]
        return exact or [m for m in allowed if sum(b for _, b in m) >= self.batch]


ASKED = st.tuples(
    tables(),
    st.integers(1, 5),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([1, 2, 3, 5]),
    st.sampled_from([0.0, 0.0, 0.3]),
    st.sampled_from([math.inf, 5.0]),
)


@settings(max_examples=examples(4))
@given(ASKED)
def test_the_least_latency_equals_brute_force(
    asked: tuple[Profile, int, int, bool, int, float, float],
) -> None:
    table, threads, batch, mixed, most, share, limit_s = asked
    slow = Interference(share, 5)
    brute = Brute(table, threads, batch, slow)
    packings = brute.fitting(most, limit_s, mixed)
    try:
        packing = best_packing(
            table, threads, batch, mixed=mixed, memory_bytes=float(most), interference=slow,
            latency_limit_s=limit_s,
        )  # fmt: skip
    except InvalidInput:
        assert not packings
        return
    assert packing.latency_s == pytest.approx(min(map(brute.seconds, packings)), rel=1e-12)
    used = Counter({(g.threads, g.batch): g.instances for g in packing.groups})
    assert packing.latency_s == pytest.approx(brute.seconds(list(used.elements())), rel=1e-12)
    assert packing.threads <= threads
    assert packing.instances <= most
    assert packing.items >= batch
    assert mixed or len(packing.groups) == 1


@settings(max_examples=examples(2))
@given(ASKED)
def test_the_least_energy_under_a_limit_equals_brute_force(
    asked: tuple[Profile, int, int, bool, int, float, float],
) -> None:
    table, threads, batch, mixed, most, share, limit_s = asked
    slow = Interference(share, 5)
    brute = Brute(table, threads, batch, slow)
    metered = [m for m in brute.all if math.isfinite(brute.joules(m))]
    brute.all = metered
    packings = brute.fitting(most, limit_s, mixed)
    try:
        packing = best_packing(
            table, threads, batch, mixed=mixed, aim=Aim.ENERGY, memory_bytes=float(most),
            interference=slow, latency_limit_s=limit_s,
        )  # fmt: skip
    except InvalidInput:
        assert not packings
        return
    assert packing.energy_j == pytest.approx(min(map(brute.joules, packings)), rel=1e-9)
    assert packing.latency_s <= limit_s


@settings(max_examples=examples(2))
@given(ASKED)
def test_the_most_throughput_under_a_limit_equals_brute_force(
    asked: tuple[Profile, int, int, bool, int, float, float],
) -> None:
    table, threads, batch, mixed, most, share, limit_s = asked
    slow = Interference(share, 5)
    brute = Brute(table, threads, batch, slow)
    packings = [
        m
        for m in brute.all
        if sum(b for _, b in m) <= batch
        and len(m) <= most
        and brute.seconds(m) <= limit_s
        and (mixed or len(set(m)) == 1)
    ]
    try:
        packing = best_packing(
            table, threads, batch, mixed=mixed, aim=Aim.THROUGHPUT, memory_bytes=float(most),
            interference=slow, latency_limit_s=limit_s,
        )  # fmt: skip
    except InvalidInput:
        assert not packings
        return
    assert packing.throughput_per_s == pytest.approx(max(map(brute.rate, packings)), rel=1e-9)
    assert packing.items <= batch


def dense(rng: random.Random) -> Profile:
    """Return a roughly realistic table: with holes, noise, and any batch sizes."""
    sizes = rng.choice([(1, 2, 4, 8), (2, 4), (3, 5), (1, 4), (1, 2, 3, 5)])
    points = {
        (t, b): ProfilePoint(
            (0.3 + 0.15 * t + b * (0.2 + 1.0 / t)) * rng.uniform(0.7, 1.3),
            energy_j=(1.0 + 0.3 * t) * rng.uniform(0.7, 1.3) / b**0.2,
        )
        for t in range(1, 7)
        for b in sizes
        if rng.random() < 0.8
    }
    points[6, max(sizes)] = ProfilePoint(5.0, energy_j=2.0)
    return Profile(points, memory_bytes=1.0)


@pytest.mark.parametrize("seed", range(300))
def test_dense_tables_equal_brute_force_in_every_aim(seed: int) -> None:
    """Here mixed shapes, padding, idle cores and interference decide more often than in random tables."""
    rng = random.Random(seed)
    table, threads, batch = dense(rng), rng.randint(3, 6), rng.randint(3, 9)
    most, slow = rng.choice([2, 3, 6]), Interference(rng.choice([0.0, 0.5, 1.5]), 6)
    limit_s = rng.choice([math.inf, 4.0])
    brute = Brute(table, threads, batch, slow)
    packings = brute.fitting(most, limit_s, mixed=True)
    room = [m for m in brute.all if len(m) <= most and sum(b for _, b in m) <= batch
            and brute.seconds(m) <= limit_s]  # fmt: skip
    expected = {
        Aim.LATENCY: min(map(brute.seconds, packings), default=None),
        Aim.ENERGY: min(map(brute.joules, packings), default=None),
        Aim.THROUGHPUT: max(map(brute.rate, room), default=None),
    }
    for aim, best in expected.items():
        try:
            packing = best_packing(
                table, threads, batch, aim=aim, memory_bytes=float(most), interference=slow,
                latency_limit_s=limit_s,
            )  # fmt: skip
        except InvalidInput:
            assert best is None
            continue
        reached = {
            Aim.LATENCY: packing.latency_s,
            Aim.ENERGY: packing.energy_j,
            Aim.THROUGHPUT: packing.throughput_per_s,
        }
        assert reached[aim] == pytest.approx(best, rel=1e-9)


def test_cores_may_stay_idle() -> None:
    """Inception-v3 at batch 1 in the published tables: 32.31 ms on 16 threads, 27.48 ms on 8."""
    packing = best_packing(profile({(16, 1): 0.03231, (8, 1): 0.02748}), 16, 1)
    assert groups(packing) == [(1, 8, 1)]
    assert packing.latency_s == 0.02748


def test_like_instances_are_preferred_among_equals() -> None:
    table = profile({(4, 4): 2.0, (2, 2): 2.0, (1, 2): 3.0})
    assert groups(best_packing(table, 4, 4)) == [(1, 4, 4)]
    assert groups(best_packing(table, 4, 4, mixed=False)) == [(1, 4, 4)]
    without = profile({(2, 2): 2.0, (1, 2): 2.0, (4, 1): 9.0})
    assert groups(best_packing(without, 4, 8)) == [(4, 1, 2)]


def test_mixed_shapes_win_if_no_equal_ones_divide_the_batch() -> None:
    table = profile({(1, 1): 1.0, (1, 2): 1.2, (2, 4): 1.9})
    assert groups(best_packing(table, 2, 3)) == [(1, 1, 2), (1, 1, 1)]
    assert groups(best_packing(table, 2, 3, mixed=False)) == [(2, 1, 2)]


def test_a_batch_that_is_not_a_sum_of_profiled_sizes_is_padded() -> None:
    table = profile({(1, 4): 1.0, (2, 8): 1.5})
    packing = best_packing(table, 2, 5)
    assert groups(packing) == [(2, 1, 4)]
    assert packing.items == 8


def test_a_part_may_be_larger_than_the_whole() -> None:
    table = profile({(1, 1): 9.0, (2, 1_000_000): 2.0, (1, 1_000_000): 3.0})
    assert groups(best_packing(table, 1, 3)) == [(1, 1, 1_000_000)]
    assert groups(best_packing(table, 2, 3)) == [(1, 2, 1_000_000)]
    assert best_packing(table, 2, 3).items == 1_000_000


def test_memory_limits_the_instances() -> None:
    table = profile({(1, 1): 1.0, (2, 2): 1.8, (4, 4): 3.0}, memory_bytes=100.0)
    assert groups(best_packing(table, 4, 4)) == [(4, 1, 1)]
    assert groups(best_packing(table, 4, 4, memory_bytes=299.0)) == [(2, 2, 2)]
    with raised(InvalidInput, "takes 100", "99 available"):
        best_packing(table, 4, 4, memory_bytes=99.0)


def test_interference_changes_the_choice_only_if_it_outweighs_the_gain() -> None:
    table = profile({(1, 1): 1.0, (4, 4): 1.4})
    slight, strong = Interference(0.2, 4), Interference(1.0, 4)
    assert groups(best_packing(table, 4, 4, interference=slight)) == [(4, 1, 1)]
    assert best_packing(table, 4, 4, interference=slight).latency_s == pytest.approx(1.15)
    assert groups(best_packing(table, 4, 4, interference=strong)) == [(1, 4, 4)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"batch": 0}, "batch cannot be 0"),
        ({"threads": 0}, "threads cannot be 0"),
        ({"threads": 32}, "covers 4 threads, not 32"),
        ({"batch": 100}, "do not fit this batch"),
        ({"batch": 2**20}, "do not fit this batch"),
        ({"batch": 10**12}, "batch cannot be 1000000000000"),
        ({"latency_limit_s": 0.5}, "the fastest point takes 1 s"),
        ({"latency_limit_s": math.nan}, "cannot be nan"),
        ({"memory_bytes": 1e9}, "has no memory size"),
        ({"memory_bytes": -1.0}, "is too small"),
    ],
)
def test_bad_questions_are_refused(arguments: dict[str, float], says: str) -> None:
    table = profile({(1, 1): 1.0, (4, 4): 1.4})
    with pytest.raises(InvalidInput, match=says) as caught:
        best_packing(table, **{"threads": 4, "batch": 4, **arguments})  # type: ignore[arg-type]
    assert caught.value.hint


def test_energy_without_a_meter_is_refused() -> None:
    with raised(MetricUnavailable, "energy_j"):
        best_packing(profile({(1, 1): 1.0}), 1, 1, aim=Aim.ENERGY)


def test_a_machine_of_128_threads_and_a_batch_of_4096_take_under_a_second() -> None:
    table = Profile(
        {
            (t, 2**k): ProfilePoint(
                0.002 + 0.01 * 2**k * (0.05 + 0.95 / t) + 0.0004 * t + 1e-6 * (7 * t + k)
            )
            for t in range(1, 129)
            for k in range(13)
        }
    )
    best_packing(profile({(1, 1): 1.0}), 1, 1)  # numpy's import is not timed
    began = time.process_time()
    packing = best_packing(table, 128, 4096)
    assert time.process_time() - began < 1.0
    assert packing.groups == (Group(128, 1, 32),)
