"""Packrat against the fat instance on this machine: profile, plan, measure both in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from policies.packrat.interference import PlanWindow, fit
from policies.packrat.packing import Group, best_packing
from policies.packrat.profile import Cell, Profile, ProfilePoint
from policies.packrat.profiling import open_points
from tuner.profiling.turns import (
    PROVEN,
    Gain,
    Pair,
    QuietTimer,
    TimedBatches,
    gain_of,
    in_turns,
    mean_of,
)

Shapes = Sequence[tuple[int, int]]
"""Threads and items of each instance of a packing."""
Packing = tuple[Group, ...]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One batch size: the chosen packing against the fat instance.

    `candidate` is the packing that promised most, by what it showed side by side, or else by what
    profile and interference predict; `predicted_latency_s` is what these predict of it, its own windows
    left out. Where it is not the fat instance, it is confirmed against that in turns; `confirming` is
    what these windows showed, None where there was nothing to confirm. What was not faster beyond noise
    is not chosen: the fat instance is.

    Everything below is of the windows after that, none of which had a part in the choice: fat and
    chosen in turns, `speedup` the geometric mean of the pairs' ratios, `foreign` the most that others
    took of the cores in any of them. Where the fat instance itself was chosen there are none: the
    speed-up is 1 without a standard error, and the latencies are the profile's.
    """

    batch: int
    candidate: Packing
    predicted_latency_s: float
    confirming: Gain | None
    plan: Packing
    fat_latency_s: float
    fat_stderr_s: float
    latency_s: float
    stderr_s: float
    speedup: float
    speedup_stderr: float
    foreign: float

    @property
    def is_fat(self) -> bool:
        """Whether the fat instance itself was chosen."""
        return self.confirming is None or not self.confirming.is_proven

    @property
    def is_slower(self) -> bool:
        """Whether the choice was slower than the fat instance beyond noise."""
        return self.speedup + PROVEN * self.speedup_stderr < 1.0

    @property
    def prediction_error(self) -> float | None:
        """By what share the prediction was above what was measured; None where the fat one is kept."""
        return None if self.is_fat else self.predicted_latency_s / self.latency_s - 1.0


@dataclass(slots=True)
class ModelBench:
    """The data on one model so far."""

    threads: int
    batches: tuple[int, ...]
    windows: int
    timed: QuietTimer[Shapes]
    report: Report
    points: dict[Cell, ProfilePoint] = field(default_factory=dict)
    plans: list[PlanWindow] = field(default_factory=list)

    @property
    def packings(self) -> list[Group]:
        """All like instances that do a whole batch size of the bench on powers of two of threads."""
        return [
            Group(count, threads, batch // count)
            for batch in self.batches
            for threads in _powers(self.threads)
            for count in _counts(batch)
            if count * threads <= self.threads
        ]

    @property
    def cells(self) -> set[Cell]:
        """All points that a full profile would have."""
        return {(g.threads, g.batch) for g in self.packings}

    def profile(self) -> Profile:
        """Measure every point that may matter, one instance alone, the fat ones first."""
        for batch in self.batches:
            self._point((self.threads, batch))
        while cells := open_points(self.packings, self.points):
            self._point(cells[0])
        return Profile(dict(self.points))

    def side_by_side(self) -> None:
        """Measure like instances at once on all threads, one plan per number of items of each."""
        for group in self.packings:
            if group.instances > 1 and group.instances * group.threads == self.threads:
                cell = (group.threads, group.batch)
                if cell not in self.points:
                    continue
                self.report(f"{group.instances} × ⟨{group.threads}, {group.batch}⟩ in parallel")
                shown = self._repeated([cell] * group.instances)
                self.plans.append(
                    PlanWindow(group.instances, *cell, shown.latency_s, shown.stderr_s)
                )

    def compare(self, batch: int) -> Comparison:
        """Choose a packing, confirm it against the fat instance, then measure the two once more.

        The windows that choose are not those reported: the best of several noisy choices looks
        better than it is.
        """
        fat = (Group(1, self.threads, batch),)
        candidate, predicted_s = self._promising(batch)
        confirming = None
        if candidate != fat:
            confirming = gain_of(self._turns(candidate, batch, "confirming"))
        if confirming is not None and confirming.is_proven:
            plan, pairs = candidate, self._turns(candidate, batch, "single instance against plan")
            gain, fat_shown, shown = gain_of(pairs), *(mean_of(w) for w in zip(*pairs, strict=True))
        else:
            point = self.points[self.threads, batch]
            plan, gain = fat, Gain(1.0, 0.0)
            fat_shown = shown = TimedBatches(point.latency_s, point.stderr_s, 0.0)
        return Comparison(
            batch=batch,
            candidate=candidate,
            predicted_latency_s=predicted_s,
            confirming=confirming,
            plan=plan,
            fat_latency_s=fat_shown.latency_s,
            fat_stderr_s=fat_shown.stderr_s,
            latency_s=shown.latency_s,
            stderr_s=shown.stderr_s,
            speedup=gain.speedup,
            speedup_stderr=gain.stderr,
            foreign=max(fat_shown.foreign, shown.foreign),
        )

    def _promising(self, batch: int) -> tuple[Packing, float]:
        """Return the packing that should be quickest, and what is predicted of it, in seconds.

        A measurement in parallel is better than any prediction.
        """
        profile = Profile(dict(self.points))
        correction = fit(profile, self.plans, self.threads)
        best = best_packing(profile, self.threads, batch, interference=correction)
        expected: dict[Packing, float] = {best.groups: best.latency_s}
        for plan in self.plans:
            if plan.instances * plan.batch == batch:
                expected[(Group(plan.instances, plan.threads, plan.batch),)] = plan.latency_s
        quickest = min(expected, key=lambda groups: expected[groups])
        return quickest, self._predicted(profile, quickest)

    def _predicted(self, profile: Profile, groups: Packing) -> float:
        """Return what the profile and the other plans' windows predict of a packing, in seconds."""
        others = [p for p in self.plans if (Group(p.instances, p.threads, p.batch),) != groups]
        correction = fit(profile, others, self.threads)
        busy = sum(g.instances * g.threads for g in groups)
        return max(
            profile.points[g.threads, g.batch].latency_s * correction.slowdown(g.threads, busy)
            for g in groups
        )

    def _turns(self, groups: Sequence[Group], batch: int, activity: str) -> list[Pair]:
        """Return windows of the fat instance and of a packing, in pairs, each first in its turn."""
        fat = [(self.threads, batch)]
        packed = [(g.threads, g.batch) for g in groups for _ in range(g.instances)]
        return in_turns(
            lambda: self.timed(fat),
            lambda: self.timed(packed),
            self.windows,
            lambda turn: self.report(f"batch {batch}: {activity}, turn {turn} of {self.windows}"),
        )

    def _point(self, cell: Cell) -> None:
        self.report(f"⟨{cell[0]} threads, {cell[1]} items⟩ alone")
        shown = self._repeated([cell])
        self.points[cell] = ProfilePoint(shown.latency_s, shown.stderr_s)

    def _repeated(self, shapes: Shapes) -> TimedBatches:
        return mean_of([self.timed(shapes) for _ in range(self.windows)])


def _powers(most: int) -> Iterator[int]:
    """Yield the powers of two up to a number, and the number itself."""
    yield from sorted({1 << k for k in range(most.bit_length())} | {most})


def _counts(batch: int) -> list[int]:
    return [count for count in range(1, batch + 1) if batch % count == 0]
