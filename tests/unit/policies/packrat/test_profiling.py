"""Bounds rule out points of a profile; several instances side by side inform the rest."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.packrat.interference import Interference, PlanWindow, fit
from policies.packrat.packing import Group, best_packing
from policies.packrat.profile import Cell, Profile, ProfilePoint
from policies.packrat.profiling import FASTER_PER_HALVING, lower_bound, open_points
from tuner.core import InvalidInput

THREADS = (1, 2, 4, 8, 16)
BATCHES = (1, 2, 4, 8, 16, 32)
PACKINGS = [
    Group(2**i, t, b)
    for t in THREADS
    for b in BATCHES
    for i in range(5)
    if 2**i * t <= 16 and 2**i * b <= 32
]


def alone(fixed: float, serial: float, parallel: float, barrier: float) -> dict[Cell, ProfilePoint]:
    """Return the profile of a machine with fixed work, serial and parallel work, and barriers."""
    return {
        (t, b): ProfilePoint(fixed + barrier * t + b * (serial + parallel / t))
        for t in THREADS
        for b in BATCHES
    }


MACHINES = st.builds(
    alone,
    st.floats(0.5, 50.0),
    st.floats(0.0, 5.0),
    st.floats(10.0, 100.0),
    st.floats(0.0, 0.5),
)


def profiled(truth: dict[Cell, ProfilePoint]) -> dict[Cell, ProfilePoint]:
    measured: dict[Cell, ProfilePoint] = {}
    while open_cells := open_points(PACKINGS, measured):
        measured[open_cells[0]] = truth[open_cells[0]]
    return measured


@given(MACHINES)
def test_skipped_points_cost_at_most_the_margin(truth: dict[Cell, ProfilePoint]) -> None:
    measured = profiled(truth)
    for demand in BATCHES:
        whole = best_packing(Profile(truth), 16, demand, mixed=False).latency_s
        best = min(
            measured[g.threads, g.batch].latency_s
            for g in PACKINGS
            if g.instances * g.batch == demand and (g.threads, g.batch) in measured
        )
        assert best <= whole / 0.98


def test_most_points_of_a_machine_that_scales_badly_are_skipped() -> None:
    assert len(profiled(alone(1.5, 2.2, 92.0, 0.35))) <= 15
    assert len(profiled(alone(14.0, 1.4, 17.0, 0.2))) <= 20


def test_bounds_come_from_fewer_items_fewer_threads_and_more_threads() -> None:
    measured = {(4, 2): ProfilePoint(1.0), (1, 1): ProfilePoint(3.0)}
    assert lower_bound(measured, (4, 8)) == 1.0, "more items take no less"
    assert lower_bound(measured, (2, 2)) == 1.5, "twice the threads are at most twice as fast"
    halved = lower_bound({(4, 2): ProfilePoint(1.0)}, (2, 2))
    assert halved == pytest.approx(1.0 - FASTER_PER_HALVING), (
        "fewer threads are a little faster at most"
    )
    assert lower_bound({(4, 2): ProfilePoint(1.0)}, (1, 2)) == pytest.approx(halved**2)
    assert lower_bound(measured, (8, 1)) == 0.375
    assert lower_bound({}, (1, 1)) == 0.0
    assert lower_bound({(1, 1): ProfilePoint(1.0, stderr_s=0.1)}, (1, 1)) == pytest.approx(
        0.8355, abs=1e-3
    )


def test_a_number_of_threads_that_divides_badly_teaches_nothing() -> None:
    """As in measurements of GPT-2: three times as slow on odd numbers of threads as on even ones."""
    every = [Group(i, t, 2**k) for t in range(1, 9) for k in range(4) for i in (1, 2, 4)
             if i * t <= 8 and i * 2**k <= 8]  # fmt: skip
    truth = {
        (t, 2**k): ProfilePoint((14 + 60 / t + 2**k * 17 / t) * (3.0 if t % 2 and t > 1 else 1.0))
        for t in range(1, 9)
        for k in range(4)
    }
    measured: dict[Cell, ProfilePoint] = {}
    while open_cells := open_points(every, measured):
        measured[open_cells[0]] = truth[open_cells[0]]
    for demand in (1, 2, 4, 8):
        whole = best_packing(Profile(truth), 8, demand, mixed=False).latency_s
        packing = best_packing(
            Profile({(8, 8): ProfilePoint(1e9), **measured}), 8, demand, mixed=False
        )
        assert packing.latency_s == whole


def test_unmeasurable_metrics_are_not_requested() -> None:
    measured: dict[Cell, ProfilePoint] = {}
    assert open_points(PACKINGS, measured)[0] == (1, 1)
    assert (1, 1) not in open_points(PACKINGS, measured, closed=[(1, 1)])


class TestInterference:
    PROFILE = Profile({(t, b): ProfilePoint(b / t + 0.1) for t in (1, 2, 4) for b in (1, 2, 4, 8)})

    def windows(self, share: float, plans: list[tuple[int, int, int]]) -> list[PlanWindow]:
        return [
            PlanWindow(i, t, b, (b / t + 0.1) * (1 + share * (i - 1) * t / 8), 0.001)
            for i, t, b in plans
        ]

    def test_a_slowdown_is_learnt_and_a_little_shrunk(self) -> None:
        plans = [(8, 1, 1), (4, 2, 2), (2, 4, 8), (4, 1, 4)]
        interference = fit(self.PROFILE, self.windows(0.3, plans), 8)
        assert 0.26 < interference.share < 0.30
        assert interference.windows == 4
        assert len(interference.errors) == 4
        assert interference.error_median is not None
        assert interference.error_median < 0.02

    def test_it_is_judged_on_plans_it_has_not_seen(self) -> None:
        """A plan twice as slow as predicted from the others appears in full in the error."""
        windows = self.windows(0.0, [(8, 1, 1), (4, 2, 2)])
        odd = PlanWindow(2, 4, 8, 2 * 2.1, 0.001)
        interference = fit(self.PROFILE, [*windows, odd], 8)
        assert max(interference.errors) == pytest.approx(0.5, abs=0.02)

    def test_without_windows_nothing_is_claimed(self) -> None:
        interference = fit(self.PROFILE, [], 8)
        assert (interference.share, interference.error_median) == (0.0, None)
        one = fit(self.PROFILE, self.windows(0.3, [(8, 1, 1)]), 8)
        assert one.share > 0.2
        assert one.error_median is None

    def test_windows_that_teach_nothing_are_left_out(self) -> None:
        useless = [PlanWindow(1, 1, 1, 9.0), PlanWindow(2, 3, 1, 9.0)]
        interference = fit(self.PROFILE, useless, 8)
        assert (interference.share, interference.windows) == (0.0, 0)
        assert interference.stderr == pytest.approx(0.15)

    def test_the_doubt_shrinks_with_each_measurement(self) -> None:
        none = fit(self.PROFILE, [], 8)
        some = fit(self.PROFILE, self.windows(0.3, [(8, 1, 1), (4, 2, 2)]), 8)
        assert none.doubt(1, 8) == pytest.approx(math.hypot(0.15 * 7 / 8, 0.05))
        assert 0.05 < some.doubt(1, 8) < 0.08
        assert some.doubt(4, 4) == 0.0

    def test_instances_side_by_side_are_never_taken_for_faster(self) -> None:
        assert fit(self.PROFILE, self.windows(-0.3, [(8, 1, 1), (4, 2, 2)]), 8).share == 0.0

    def test_a_single_instance_is_not_slowed(self) -> None:
        assert Interference(0.3, 8).slowdown(4, 4) == 1.0
        assert Interference(0.3, 8).slowdown(4, 8) == pytest.approx(1.15)


@pytest.mark.parametrize(
    "points",
    [
        {},
        {(0, 1): ProfilePoint(1.0)},
        {(1, 0): ProfilePoint(1.0)},
        {(1, 1): ProfilePoint(float("nan"))},
        {(1, 1): ProfilePoint(-1.0)},
        {(1, 1): ProfilePoint(1.0, stderr_s=float("nan"))},
        {(1, 1): ProfilePoint(1.0, energy_j=0.0)},
    ],
)
def test_a_profile_of_nonsense_is_refused(points: dict[Cell, ProfilePoint]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Profile(points)
    assert caught.value.hint
