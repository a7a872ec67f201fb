"""Profile a reference model on this machine, plan every batch size, and measure the plans.

A plan is compared with the fat instance: the only instance of its packing, with all threads and the whole
batch; both are measured in turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.workloads.reference.allocators import allocators
from agents.workloads.reference.catalogue import Model
from agents.workloads.reference.instance import Recipe
from agents.workloads.reference.slab import inputs
from policies.packrat.interference import PlanWindow, fit
from policies.packrat.packing import Group, best_packing
from policies.packrat.profile import Cell, Profile, ProfilePoint
from policies.packrat.profiling import open_points
from tests.bench.turns import (
    PROVEN,
    Gain,
    Pair,
    QuietTimer,
    TimedBatches,
    gain_of,
    in_turns,
    mean_of,
)
from tests.engines import timing

Shapes = Sequence[tuple[int, int]]
"""Threads and items of each instance of a packing."""
Packing = tuple[Group, ...]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One batch size: the chosen packing against the fat instance.

    `candidate` is the packing with the lowest expected latency: measured side by side if it was, else
    predicted from profile and interference. `predicted_latency_s` is the latter prediction without the
    candidate's own windows. A candidate other than the fat instance is confirmed against it in turns;
    `confirming` is the gain in these windows, None if the fat instance was the candidate. `plan` is the
    candidate if its gain is proven, else the fat instance.

    All further fields are from later windows, which had no part in the choice, of the fat instance and the
    plan in turns: `speedup` is the geometric mean of the pairs' ratios, `foreign` the largest share of the
    cores that other processes used in any window. There are no such windows if the plan is the fat
    instance: the speed-up is then 1 ± 0, and the latencies are the profile's.
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
        """Whether the plan was slower than the fat instance by more than `PROVEN` standard errors."""
        return self.speedup + PROVEN * self.speedup_stderr < 1.0

    @property
    def prediction_error(self) -> float | None:
        """The relative error (predicted − measured) / measured; None if the fat instance is the plan."""
        return None if self.is_fat else self.predicted_latency_s / self.latency_s - 1.0


@dataclass(slots=True)
class ModelBench:
    """Measures one model and keeps its points and plans.

    `threads` is the number of cores, `batches` are the batch sizes to compare, `windows` is the number of
    windows per measurement. `points` are the instances measured alone, `plans` those side by side.
    """

    threads: int
    batches: tuple[int, ...]
    windows: int
    timed: QuietTimer[Shapes]
    report: Report
    points: dict[Cell, ProfilePoint] = field(default_factory=dict)
    plans: list[PlanWindow] = field(default_factory=list)

    @property
    def packings(self) -> list[Group]:
        """All packings of equal instances for a batch size of the bench.

        Each instance has a power of two of threads, or all of them.
        """
        return [
            Group(count, threads, batch // count)
            for batch in self.batches
            for threads in _powers(self.threads)
            for count in _counts(batch)
            if count * threads <= self.threads
        ]

    @property
    def cells(self) -> set[Cell]:
        """All points of a full profile."""
        return {(g.threads, g.batch) for g in self.packings}

    def profile(self) -> Profile:
        """Measure every point that a best packing may need, one instance alone; the fat ones first."""
        for batch in self.batches:
            self._point((self.threads, batch))
        while cells := open_points(self.packings, self.points):
            self._point(cells[0])
        return Profile(dict(self.points))

    def side_by_side(self) -> None:
        """Measure each packing of equal instances that uses all threads, if its point was profiled."""
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

        Only the last windows are reported: the best of several noisy candidates looks better in the windows
        that chose it than it is.
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
        """Return the packing with the lowest expected latency, and its predicted latency in seconds.

        A measurement of a packing in parallel replaces its prediction in the choice.
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
        """Return a packing's latency in seconds, predicted by the profile and the other plans' windows."""
        others = [p for p in self.plans if (Group(p.instances, p.threads, p.batch),) != groups]
        correction = fit(profile, others, self.threads)
        busy = sum(g.instances * g.threads for g in groups)
        return max(
            profile.points[g.threads, g.batch].latency_s * correction.slowdown(g.threads, busy)
            for g in groups
        )

    def _turns(self, groups: Sequence[Group], batch: int, activity: str) -> list[Pair]:
        """Return pairs of windows of the fat instance and a packing; which is measured first alternates."""
        fat = [(self.threads, batch)]
        packed = [(g.threads, g.batch) for g in groups for _ in range(g.instances)]
        return in_turns(
            lambda: self.timed(fat),
            lambda: self.timed(packed),
            self.windows,
            lambda turn: self.report(f"batch {batch}: {activity}, turn {turn} of {self.windows}"),
        )

    def _point(self, cell: Cell) -> None:
        """Measure one instance alone and keep its point."""
        self.report(f"⟨{cell[0]} threads, {cell[1]} items⟩ alone")
        shown = self._repeated([cell])
        self.points[cell] = ProfilePoint(shown.latency_s, shown.stderr_s)

    def _repeated(self, shapes: Shapes) -> TimedBatches:
        """Return the mean of `windows` windows of a packing."""
        return mean_of([self.timed(shapes) for _ in range(self.windows)])


def _powers(most: int) -> Iterator[int]:
    """Yield the powers of two up to a number, and the number itself."""
    yield from sorted({1 << k for k in range(most.bit_length())} | {most})


def _counts(batch: int) -> list[int]:
    """Return the numbers of instances that divide a batch evenly."""
    return [count for count in range(1, batch + 1) if batch % count == 0]


@dataclass(frozen=True, slots=True)
class Windows:
    """The number of windows of each kind, their seconds, and the largest foreign share of the cores."""

    count: int
    seconds: float
    most_foreign: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """The measurements of one model; `memory_bytes` is the memory of its largest instance."""

    model: str
    bench: ModelBench
    comparisons: tuple[Comparison, ...]
    memory_bytes: int

    @property
    def prediction_errors(self) -> list[float]:
        """The relative error (predicted − measured) / measured of each chosen plan's latency.

        A plan's own windows had no part in its prediction.
        """
        return [e for c in self.comparisons if (e := c.prediction_error) is not None]


def measure_model(
    which: Model,
    batches: tuple[int, ...],
    cores: Sequence[int],
    windows: Windows,
    seed: int,
    progress: Callable[[str, int], None],
) -> ModelResult:
    """Profile one model and compare its best packing of each batch size with the fat instance.

    `progress` is called before each step with its description and the number of steps expected.

    Raises:
        ActuationError: an instance could not be started.
    """
    recipe = Recipe(which, seed, which.width, inputs(which, seed), max(batches))
    allocator = next(iter(allocators()), "")
    with timing.Timer(recipe, cores, Path("/proc/stat")) as timer:

        def window(shapes: Shapes) -> TimedBatches:
            return timer.window(shapes, windows.seconds, allocator)

        def step(activity: str) -> None:
            progress(
                f"{which.name}: {activity}", len(bench.cells) + 2 * windows.count * len(batches)
            )

        timed = QuietTimer(window, windows.most_foreign)
        bench = ModelBench(len(cores), batches, windows.count, timed, step)
        bench.profile()
        bench.side_by_side()
        comparisons = tuple(bench.compare(batch) for batch in batches)
        return ModelResult(
            model=which.name,
            bench=bench,
            comparisons=comparisons,
            memory_bytes=timer.own_bytes(allocator),
        )


def summary(results: Sequence[ModelResult]) -> dict[str, object]:
    """Return all measurements as one JSON object."""
    speedups = [c.speedup for result in results for c in result.comparisons]
    errors = [e for result in results for e in result.prediction_errors]
    return {
        "threads": results[0].bench.threads,
        "speedup_mean": statistics.fmean(speedups),
        "speedup_max": max(speedups),
        "slower_than_fat": sum(c.is_slower for result in results for c in result.comparisons),
        **_error_percents(errors),
        "models": [
            {
                "model": result.model,
                "points": len(result.bench.points),
                "points_of_full_profile": len(result.bench.cells),
                **_error_percents(result.prediction_errors),
                "rejected_windows": result.bench.timed.rejected,
                "disturbed_windows": result.bench.timed.disturbed,
                "foreign_worst": result.bench.timed.worst,
                "batches": result.comparisons,
            }
            for result in results
        ],
    }


def _error_percents(errors: Sequence[float]) -> dict[str, float | None]:
    """Return the median size of prediction errors, the least and the greatest in %; None without errors."""
    percents = [100.0 * error for error in errors]
    return {
        "prediction_error_median_percent": statistics.median(map(abs, percents))
        if percents
        else None,
        "prediction_error_least_percent": min(percents, default=None),
        "prediction_error_most_percent": max(percents, default=None),
    }
