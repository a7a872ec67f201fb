"""The share of the true front of two objectives that a search of 30 trials finds, on made-up surfaces.

The share is the hypervolume of the true values of the measured settings, over that of every setting
within the limit, a latency of twice the baseline's. The reference point is inferred from the true front
as the search infers it from the measured one. Windows are 2 % noisy.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import torch
from botorch.utils.multi_objective.hypervolume import Hypervolume, infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated

from policies.pareto.policy import Pareto
from tests.bench.contest.surfaces import SurfaceProblem
from tests.bench.made_up.kinds import made_up
from tuner.core import (
    Estimate,
    Load,
    Measurement,
    Objective,
    Past,
    Phase,
    Setting,
    Study,
    Terms,
    Trial,
    TrialState,
    Try,
)

TRIALS = 30
NOISE = 0.02
SLACK = 2.0
KINDS = ("queue", "roofline", "fine_ladder", "serving", "tiles")
START = datetime(2026, 1, 1, tzinfo=UTC)
METRICS = ("energy_j", "latency_ms")


def fronts(seed: int) -> dict[str, float]:
    """Return the found share of the true hypervolume by surface."""
    problems = [p for p in made_up(seed, 10) if p.source in KINDS]
    return {p.surface.name: round(share_found(p, seed), 4) for p in problems}


def share_found(problem: SurfaceProblem, seed: int) -> float:
    """Return the share of the true hypervolume that a search of one surface has found at its end."""
    space = problem.surface.space
    study = Study(
        id="front",
        devices=("made-up",),
        workload="made-up",
        space=space,
        objective=Objective("energy_j"),
        second_objective=Objective("latency_ms"),
        quantities=problem.quantities,
        constraints=problem.constraints(SLACK),
        policy="pareto",
        seed=seed,
        terms=Terms(trials=TRIALS),
        phase=Phase.TUNING,
        created_at=START,
    )
    rng, trials = Random(seed), []
    for number in (1, 2):
        trials.append(_trial(number, space.default, problem, rng, Phase.BASELINE))
    while isinstance(answer := Pareto().suggest(Past(study=study, trials=tuple(trials))), Try):
        trials.append(_trial(len(trials) + 1, answer.setting, problem, rng, Phase.TUNING))
    true = _points(problem, list(space.grid()))
    known = _points(problem, [t.setting for t in trials])
    volume = Hypervolume(infer_reference_point(_front(true)))
    return float(volume.compute(_front(known)) / volume.compute(_front(true)))


def _trial(
    number: int, setting: Setting, problem: SurfaceProblem, rng: Random, phase: Phase
) -> Trial:
    true = problem.surface.row(setting)
    shown = {
        name: Estimate.of_mean(value * rng.lognormvariate(0.0, NOISE), NOISE * value, 100)
        for name, value in true.items()
    }
    window = Measurement(
        estimates=shown, started_at=START, seconds=10.0, load=Load(completed=500), context={}
    )
    return Trial(
        number=number, setting=setting, phase=phase, context={}, state=TrialState.COMPLETED,
        started_at=START, ended_at=START, measurement=window,
    )  # fmt: skip


def _points(problem: SurfaceProblem, settings: list[Setting]) -> torch.Tensor:
    """Return the true values of the settings within the limit, relative to the baseline; more is better."""
    base = problem.surface.row(problem.surface.space.default)
    points = torch.tensor(
        [[-problem.surface.row(s)[m] / base[m] for m in METRICS] for s in settings]
    ).double()
    return points[points[:, 1] >= -SLACK]


def _front(points: torch.Tensor) -> torch.Tensor:
    return points[is_non_dominated(points)]
