"""Plan a batch from a measured profile: the best packing, its gain, and the error of that gain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from policies.packrat.interference import Interference, fit
from policies.packrat.packing import Aim, Group, Packing, best_packing
from policies.packrat.policy import PROVEN
from tuner.core import ConfigError, Constraint, Estimate, InvalidInput
from tuner.profiling.packrat.profiles import Measured


@dataclass(frozen=True)
class PlanRequest:
    """A request for a plan: the measured profile, the threads, the batch size and the memory in bytes."""

    measured: Measured
    threads: int
    batch: int
    memory_bytes: float = float("inf")

    @cached_property
    def interference(self) -> Interference:
        """The slowdown of instances side by side, fitted to the profile."""
        side_by_side = (w.instances * w.threads for w in self.measured.windows)
        cores = max([self.measured.profile.threads, *side_by_side])
        return fit(self.measured.profile, self.measured.windows, cores)

    def packing(
        self, batch: int, aim: Aim | None = None, latency_limit_s: float = float("inf")
    ) -> Packing:
        """Return the best packing of a batch. Raises InvalidInput: no packing fits."""
        return best_packing(
            self.measured.profile,
            self.threads,
            batch,
            aim=aim or Aim.LATENCY,
            latency_limit_s=latency_limit_s,
            memory_bytes=self.memory_bytes,
            interference=self.interference,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """The plan of a batch, with its expected performance beside the fat instance's.

    `plan_latency_s` is the expected latency of each entry of `plan`. `speedup` is the fat instance's
    latency over the plan's (with the objective throughput: the plan's items per second over the fat
    instance's); None if the profile lacks the fat instance. `speedup_stderr` is its standard error, from
    the rows' standard errors and that of the interference. `room` is the plan's capacity in items.
    `interference_percent` is the slowdown of an instance while all other threads of the profiled machine
    are busy, fitted to the rows of several instances; `interference_error_percent` is the median error on
    plans left out of the fit, None if there are fewer than two.
    """

    model: str
    threads: int
    batch: int
    objective: str
    plan: tuple[Group, ...]
    plan_latency_s: tuple[float, ...]
    predicted_latency_s: float
    fat_latency_s: float | None
    speedup: float | None
    speedup_stderr: float | None
    throughput_per_s: float
    energy_j: float | None
    idle_threads: int
    room: int
    interference_percent: float
    interference_error_percent: float | None
    notes: tuple[str, ...]


def plan_batch(request: PlanRequest, objective: str, constraint: str) -> PlannedBatch:
    """Return the best plan for an objective (a value of `Aim`) and a constraint (empty: none).

    Raises:
        ConfigError: the objective or the constraint is not supported, or the constraint lacks its baseline.
        ConstraintSyntax: the constraint cannot be read.
        InvalidInput: no packing fits.
    """
    try:
        aim = Aim(objective)
    except ValueError:
        raise ConfigError(
            f"--objective cannot be {objective!r}", hint=f"choose {', '.join(Aim)}"
        ) from None
    profile = request.measured.profile
    fat_s = profile.fat(request.threads, request.batch)
    packing = request.packing(request.batch, aim, _limit_s(constraint, fat_s))
    reference = request.batch / fat_s if fat_s is not None else None
    reached = request.batch / packing.latency_s
    if aim is Aim.THROUGHPUT:
        reached = packing.throughput_per_s
    correction = request.interference
    error = correction.error_median
    speedup = reached / reference if reference is not None else None
    doubt = None if speedup is None else speedup * _doubt(request, packing)
    return PlannedBatch(
        model=request.measured.model,
        threads=request.threads,
        batch=request.batch,
        objective=objective,
        plan=packing.groups,
        plan_latency_s=tuple(
            profile.points[g.threads, g.batch].latency_s
            * correction.slowdown(g.threads, packing.threads)
            for g in packing.groups
        ),
        predicted_latency_s=packing.latency_s,
        fat_latency_s=fat_s,
        speedup=speedup,
        speedup_stderr=doubt,
        throughput_per_s=packing.throughput_per_s,
        energy_j=packing.energy_j,
        idle_threads=request.threads - packing.threads,
        room=packing.items,
        interference_percent=100.0 * correction.share,
        interference_error_percent=None if error is None else 100.0 * error,
        notes=(*_gain_notes(request, packing, speedup, doubt), *_notes(request, packing, aim)),
    )


def _doubt(request: PlanRequest, packing: Packing) -> float:
    """Return the relative standard error of a plan's speed-up over the fat instance."""
    points, slower = request.measured.profile.points, request.interference
    cell = request.measured.profile.fat_cell(request.threads, request.batch)
    if cell is None or packing.groups == (Group(1, *cell),):
        return 0.0
    fat = points[cell]
    doubts = []
    for group in packing.groups:
        point = points[group.threads, group.batch]
        slowdown = slower.slowdown(group.threads, packing.threads)
        side_by_side = slower.doubt(group.threads, packing.threads) / slowdown
        doubts.append(math.hypot(point.stderr_s / point.latency_s, side_by_side))
    return math.hypot(fat.stderr_s / fat.latency_s, max(doubts))


def _gain_notes(
    request: PlanRequest, packing: Packing, speedup: float | None, doubt: float | None
) -> Iterator[str]:
    """Yield warnings about an unreliable gain."""
    if packing.instances > 1 and not request.interference.windows:
        yield (
            "the profile has no rows of several instances, so the "
            "expected times ignore the slowdown of instances in parallel"
        )
    if speedup is not None and doubt is not None and 0.0 < speedup - 1.0 <= PROVEN * doubt:
        yield (
            "the gain is within the error of the prediction; measure "
            "the plan against the single instance before you deploy it"
        )


def _notes(request: PlanRequest, packing: Packing, aim: Aim) -> Iterator[str]:
    """Yield remarks on spare room, on a missing or inexact comparison, and on a larger but faster batch."""
    profile = request.measured.profile
    if packing.items > request.batch:
        yield (
            f"no profiled batch sizes add up to {request.batch} here: the plan has "
            f"room for {packing.items}, and a part-filled batch costs as much as a full one"
        )
    fat = profile.fat_cell(request.threads, request.batch)
    if fat is None:
        yield (
            f"the profile has no instance with {request.threads} threads and {request.batch} items or "
            "more, so the plan cannot be compared"
        )
    elif fat[1] > request.batch:
        yield (
            "the single instance was not profiled with "
            f"{request.batch} items; its cost with {fat[1]} is used"
        )
    rounded = 1 << (request.batch - 1).bit_length()
    if aim is Aim.LATENCY and rounded > request.batch:
        try:
            larger = request.packing(rounded)
        except InvalidInput:
            return
        if larger.latency_s < packing.latency_s:
            yield (
                f"{rounded} items would be done in {larger.latency_s:.4g} s: "
                f"round the batch up (--batch {rounded})"
            )


def _limit_s(constraint: str, fat_s: float | None) -> float:
    """Return the limit in seconds, infinite for none. Raises ConstraintSyntax, ConfigError."""
    if not constraint:
        return float("inf")
    parsed = Constraint.parse(constraint)
    if parsed.metric != "latency_s" or parsed.op != "<=":
        raise ConfigError(
            f"a plan does not support the constraint {constraint!r}",
            hint='write it like "latency_s <= 0.05"',
        )
    limit = parsed.limit({} if fat_s is None else {"latency_s": Estimate(fat_s)})
    if limit is None:
        raise ConfigError(
            f"{constraint!r} has no baseline: the profile has no single instance on all threads",
            hint='give an absolute limit, like "latency_s <= 0.05"',
        )
    return limit
