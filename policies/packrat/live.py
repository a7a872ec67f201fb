"""Derive a profile, packings and demands from a study's windows.

A closed loop without waits keeps every batch full, so a batch of an instance takes
instances × batch_size / throughput. The number of requests in flight follows from Little's law
(throughput × mean latency); larger batches than that cannot be filled, and are left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from policies.packrat.interference import Interference, PlanWindow, fit
from policies.packrat.packing import Group
from policies.packrat.profile import Cell, Profile, ProfilePoint
from tuner.core import (
    Candidate,
    Evidence,
    InvalidInput,
    Setting,
    Study,
    setting_key,
)

UNDER_WAY_ROOM = 1.15
"""The factor on the requests in flight, for those that arrive or leave at the moment and are not
counted."""
KNOBS = ("instances", "threads", "batch_size")
TIMES = ("latency_mean_ms", "latency_p50_ms", "latency_p99_ms", "throughput_per_s")
"""The objectives for which the shortest batch time is the best."""


def allowed(study: Study) -> dict[Group, Setting]:
    """Return the settings that may be chosen, by packing; other knobs stay at their default.

    A knob that the space lacks counts as 1. All instances together have at most as many threads as one
    instance may have, unless the space lists its settings.

    Raises:
        InvalidInput: the space has none of the knobs, or a value of one is not an integer from 1 on.
    """
    space = study.space
    present = [k for k in space.knobs if k.name in KNOBS]
    if not present:
        raise InvalidInput(
            f"packrat sets {', '.join(KNOBS)}, and the space has none of them",
            hint="choose another policy, or a workload with these knobs",
        )
    for knob in present:
        if not all(isinstance(v, int) and v >= 1 for v in knob.values):
            raise InvalidInput(
                f"packrat needs integer values of {knob.name}, not {knob.values}",
                hint="give the knob integers >= 1",
            )
    listed = {setting_key(s) for s in space.only}
    most = max((int(v) for k in present if k.name == "threads" for v in k.values), default=None)
    by_group: dict[Group, Setting] = {}
    for values in itertools.product(*(k.values for k in present)):
        setting = {**study.baseline, **{k.name: v for k, v in zip(present, values, strict=True)}}
        group = group_of(setting)
        if listed:
            fits = setting_key(setting) in listed
        else:
            fits = most is None or group.instances * group.threads <= most
            fits = fits and space.canonical(setting) == setting
        if fits:
            by_group[group] = setting
    return by_group


def group_of(setting: Setting) -> Group:
    """Return the instances, threads and batch size of a setting; 1 for each that is missing."""
    return Group(*(int(setting.get(name, 1)) for name in KNOBS))


def under_way(study: Study, evidence: Evidence) -> float | None:
    """Return the number of requests in flight at the baseline; None if unknown, or under an open loop.

    Without a mean latency, as with too few requests of a slow model, the median is used.
    """
    base = evidence.of(study.baseline)
    if base is None or any("arrival_rate_per_s" in t.ran_at for t in base.trials):
        return None
    rate = base.estimates.get("throughput_per_s")
    latency_ms = base.estimates.get("latency_mean_ms", base.estimates.get("latency_p50_ms"))
    if rate is None or latency_ms is None:
        return None
    return rate.mean * latency_ms.mean / 1000.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """The values of the measured packings and the predictions for the others; less is always better.

    The value is the latency of the batch. For another objective (CPU time, energy) it is the objective
    itself; then several instances are predicted to be as good as one instance alone.
    """

    study: Study
    measured: Mapping[Group, Candidate]
    points: Mapping[Cell, ProfilePoint]
    interference: Interference

    @classmethod
    def of(cls, study: Study, evidence: Evidence, settings: Mapping[Group, Setting]) -> Outlook:
        """Return the outlook of a study from its evidence, with the interference fitted to it."""
        groups = {setting_key(setting): group for group, setting in settings.items()}
        measured = {
            groups[key]: c for c in evidence.candidates if (key := setting_key(c.setting)) in groups
        }
        cores = max(g.instances * g.threads for g in settings)
        batch_points = {g: p for g, c in measured.items() if (p := batch_point(g, c)) is not None}
        points = {(g.threads, g.batch): p for g, p in batch_points.items() if g.instances == 1}
        windows = [
            PlanWindow(g.instances, g.threads, g.batch, p.latency_s, p.stderr_s)
            for g, p in batch_points.items()
            if g.instances > 1
        ]
        learnt = fit(Profile(points), windows, cores) if points else Interference(0.0, cores)
        return cls(study, measured, points, learnt)

    @property
    def timed(self) -> bool:
        """Whether the shortest batch time is best for the objective."""
        objective = self.study.objective
        sensible = "maximize" if objective.metric == "throughput_per_s" else "minimize"
        return objective.metric in TIMES and objective.goal == sensible

    def shown(self, group: Group) -> float | None:
        """Return the measured value of a packing; None if it was not measured."""
        candidate = self.measured.get(group)
        if candidate is None:
            return None
        if self.timed:
            point = batch_point(group, candidate)
            return None if point is None else point.latency_s
        estimate = self.study.objective.score(candidate.estimates)
        return None if estimate is None else self.study.objective.sign * estimate.mean

    def expected(self, group: Group) -> float | None:
        """Return the measured or predicted value of a packing; None if its cell was not measured."""
        shown = self.shown(group)
        if shown is not None or group.instances == 1:
            return shown
        alone = self.shown(Group(1, group.threads, group.batch))
        if alone is None or not self.timed:
            return alone
        busy = group.instances * group.threads
        return alone * self.interference.slowdown(group.threads, busy)

    def at(self, group: Group, demand: int) -> float:
        """Return the value of a packing for `demand` items that arrive together; infinite if unknown.

        Items that do not fit take further rounds. A batch that is not filled counts as a smaller batch.
        """
        items = min(group.batch, demand)
        value = self.expected(Group(group.instances, group.threads, items))
        if value is None:
            return math.inf
        return value * math.ceil(demand / (group.instances * items)) if self.timed else value


def demands_within(requests: float) -> list[int]:
    """Return the batch sizes, powers of two, that these requests in flight can fill, within a seventh."""
    return [2**k for k in range(max(1, int(requests * UNDER_WAY_ROOM)).bit_length())]


def batch_point(group: Group, candidate: Candidate) -> ProfilePoint | None:
    """Return the time of a full batch from a candidate's windows; None without a throughput."""
    rate = candidate.estimates.get("throughput_per_s")
    if rate is None or rate.mean <= 0.0:
        return None
    latency_s = group.instances * group.batch / rate.mean
    return ProfilePoint(latency_s, latency_s * rate.stderr / rate.mean)
