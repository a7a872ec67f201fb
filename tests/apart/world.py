"""A study on identical devices in virtual time: the production loop and policies over known true values.

A window takes its length ± 10 %, and a suggestion takes no time. The levels of each device differ by
some per cent from the true values, and each window has independent noise.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from db import Store, open_store
from policies import load_policy
from tests.builders import Time
from tuner.core import (
    Applied,
    Constraint,
    Device,
    Estimate,
    Level,
    Limit,
    Measurement,
    Metric,
    Objective,
    Origin,
    Outcome,
    Phase,
    Policy,
    Setting,
    Space,
    Study,
    Terms,
    TrialState,
    limits,
    quantity_of,
    student_t95,
)
from tuner.core.quantities import Quantities
from tuner.study.loop import Loop
from tuner.wire import Assignment, HoldOrder, Poll, TrialReport

WINDOW_S = 10.0
PARTS = 10
"""The number of parts of a window from which its standard error is estimated."""
MOST_WINDOWS = 200


@dataclass(frozen=True, slots=True)
class TrueSurface:
    """A tuning problem: a space, its true values, its objective and its constraints."""

    name: str
    space: Space
    truth: Callable[[Setting], Mapping[str, float]]
    metrics: tuple[str, ...]
    objective: Objective
    constraints: tuple[Constraint, ...]
    quantities: Quantities = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)
    """By metric, the noise of a window relative to the usual one; by default 1."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that the true baseline sets."""
        at_baseline = self.truth(self.space.default)
        return limits(self.constraints, {m: Estimate(at_baseline[m]) for m in self.metrics}) or ()

    def keeps(self, setting: Setting) -> bool:
        """Return whether a setting truly keeps every limit."""
        shown = self.truth(setting)
        return all(limit.holds(shown[limit.metric]) for limit in self.limits)

    def saving(self, setting: Setting) -> float:
        """Return the true saving of a setting, as a share of the baseline's objective."""
        own, base = (self.truth(s)[self.objective.metric] for s in (setting, self.space.default))
        return self.objective.sign * (1.0 - own / base)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartRun:
    """The result of a study; times in windows.

    `saving` is the true saving of the held setting. `found` has pairs (time, saving): at each time a
    setting had been measured that truly keeps the limits and saves more than those before. `tuned` is
    the end of the last trial before confirming, `held` the time of the hold. `tried` is the number of
    tuning trials, `above` the number of those truly above a limit; `held_above` is whether the held
    setting is above one.
    """

    surface: str
    devices: int
    seed: int
    saving: float
    found: tuple[tuple[float, float], ...]
    tuned: float
    held: float
    tried: int
    above: int
    held_above: bool

    def reached(self, saving: float) -> float | None:
        """Return the time at which a setting with this saving had been measured; None if never."""
        return next((at for at, found in self.found if found >= saving), None)


def run(
    surface: TrueSurface,
    devices: int,
    seed: int,
    *,
    policy: str = "polythrottle",
    trials: int = 20,
    noise: float = 0.02,
    levels: float = 0.02,
) -> ApartRun:
    """Run a study until its hold; `levels` is the standard deviation of the differences between devices."""
    names = tuple(f"board-{number}" for number in range(devices))
    time, store = Time(), open_store("memory://")
    loop = Loop(store, partial(_policy, load_policy(policy)), time.now, monotonic=time.monotonic)
    for name in names:
        loop.register(_device(name, surface))
    store.studies.add(
        Study(
            id="s1",
            devices=names,
            workload="inference",
            space=surface.space,
            objective=surface.objective,
            quantities=surface.quantities,
            constraints=surface.constraints,
            policy=policy,
            seed=zlib.crc32(f"{surface.name}/{seed}".encode()),
            terms=Terms(trials=trials, window_s=WINDOW_S, max_window_s=4.0 * WINDOW_S),
            phase=Phase.BASELINE,
            created_at=time.now(),
        ),
        "bench",
        "created",
    )
    boards = {
        name: _Board(surface, seed, number, noise, levels) for number, name in enumerate(names)
    }
    ends: list[tuple[float, str, Assignment]] = []
    free = set(names)
    while True:
        for name in sorted(free):
            order = loop.order(name, _poll(name, surface))
            if isinstance(order, HoldOrder):
                return _scored(surface, devices, seed, store, time.monotonic())
            if isinstance(order, Assignment):
                free.discard(name)
                heapq.heappush(ends, (time.monotonic() + boards[name].takes_s(), name, order))
        if not ends or time.monotonic() > MOST_WINDOWS * WINDOW_S:
            raise AssertionError(f"{surface.name}, {devices} devices, seed {seed}: stands still")
        end, name, order = heapq.heappop(ends)
        time.sleep(end - time.monotonic())
        outcome = boards[name].outcome(order.setting, time)
        loop.trial_reports.record(TrialReport.of(order, device=name, outcome=outcome))
        free.add(name)


def _policy(known: Policy, _: str) -> Policy:
    return known


def _poll(name: str, surface: TrueSurface) -> Poll:
    original = Applied(
        device=name, setting=surface.space.default, level=Level.ORIGINAL, at=Time().now()
    )
    return Poll(agent=f"{name}/1", applied=original)


def _device(name: str, surface: TrueSurface) -> Device:
    return Device(
        id=name,
        kind="simulated",
        board="made-up",
        driver="1",
        agent=name,
        workload="inference",
        workload_version="1",
        space=surface.space,
        metrics=tuple(
            Metric(m, Origin.SIMULATED, quantity=quantity_of(m, surface.quantities))
            for m in surface.metrics
        ),
        seen_at=Time().now(),
    )


class _Board:
    """One device: its own levels, and noise that is the same for the same seed."""

    def __init__(
        self, surface: TrueSurface, seed: int, number: int, noise: float, levels: float
    ) -> None:
        self._surface, self._noise = surface, noise
        self._rng = np.random.default_rng([zlib.crc32(surface.name.encode()), seed, number])
        draws = self._rng.standard_normal(len(surface.metrics))
        self._levels = {
            m: math.exp(levels * surface.noise.get(m, 1.0) * float(z))
            for m, z in zip(surface.metrics, draws, strict=True)
        }

    def takes_s(self) -> float:
        """Return the duration of the next window, in seconds."""
        return WINDOW_S * float(self._rng.uniform(0.9, 1.1))

    def outcome(self, setting: Setting, time: Time) -> Outcome:
        """Return the outcome of a window at a setting."""
        true = self._surface.truth(setting)
        estimates = {}
        for metric in self._surface.metrics:
            noise = self._noise * self._surface.noise.get(metric, 1.0)
            mean = true[metric] * self._levels[metric]
            mean *= math.exp(noise * float(self._rng.standard_normal()))
            part = math.sqrt(float(self._rng.chisquare(PARTS - 1)) / (PARTS - 1))
            stderr = noise * part * mean
            reach = student_t95(PARTS - 1) * stderr
            estimates[metric] = Estimate(
                mean, stderr, PARTS, mean - reach, mean + reach, Origin.SIMULATED
            )
        window = Measurement(estimates=estimates, started_at=time.now(), seconds=WINDOW_S)
        return Outcome(state=TrialState.COMPLETED, measurement=window)


def _scored(surface: TrueSurface, devices: int, seed: int, store: Store, now_s: float) -> ApartRun:
    study = store.studies.get("s1")
    held = study.plan.rows[0].setting if study.plan is not None else study.baseline
    began = study.created_at
    tuning = [t for t in store.trials.list("s1") if t.phase is Phase.TUNING]
    ends = sorted(
        (
            ((t.ended_at - began).total_seconds() / WINDOW_S, t)
            for t in tuning
            if t.ended_at is not None
        ),
        key=lambda end: end[0],
    )
    points = [(0.0, 0.0)]
    for end, trial in ends:
        if surface.keeps(trial.setting) and surface.saving(trial.setting) > points[-1][1]:
            points.append((end, surface.saving(trial.setting)))
    return ApartRun(
        surface=surface.name,
        devices=devices,
        seed=seed,
        saving=surface.saving(held),
        found=tuple(points),
        tuned=ends[-1][0] if ends else 0.0,
        held=now_s / WINDOW_S,
        tried=len(tuning),
        above=sum(not surface.keeps(t.setting) for t in tuning),
        held_above=not surface.keeps(held),
    )
