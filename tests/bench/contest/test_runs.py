"""Studies in processes: none is lost, even if it fails."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.bench.contest.replay import Task, TaskResult
from tests.bench.contest.runs import Failure, Job, Result, run_all
from tests.bench.contest.surfaces import SurfaceProblem
from tests.bench.contest.tables import steep
from tuner.core import Limit


class Deadly(SurfaceProblem):
    """A problem that takes its process down."""

    def limits(self, slack: float) -> tuple[Limit, ...]:
        os._exit(3)


def task(problem: SurfaceProblem, **changes: object) -> Task:
    fields = {"tuner": "hillclimb", "problem": problem, "slack": 1.1, "seed": 0, "budgets": (2,)}
    return Task(**{**fields, **changes})  # type: ignore[arg-type]


def without_seconds(results: list[Result]) -> list[object]:
    return [
        replace(r, checkpoints=tuple(replace(c, seconds=0.0) for c in r.checkpoints))
        for r in results
        if isinstance(r, TaskResult)
    ]


def test_results_have_the_order_of_the_jobs_for_any_processes(tmp_path: Path) -> None:
    jobs = [Job(task(steep(tmp_path), seed=seed)) for seed in range(6)]
    heard: list[Result] = []
    one = run_all(jobs, 1, lambda _: None)
    two = run_all(jobs, 2, heard.append)
    assert [r.seed for r in one if isinstance(r, TaskResult)] == [0, 1, 2, 3, 4, 5]
    assert without_seconds(one) == without_seconds(two)
    assert len(heard) == 6


def test_a_study_that_breaks_down_is_reported_with_its_surface(tmp_path: Path) -> None:
    problem = steep(tmp_path)
    jobs = [Job(task(problem, tuner="nobody")), Job(task(problem))]
    broken, fine = run_all(jobs, 1, lambda _: None)
    assert broken == Failure("nobody on tiny, T|w (slack 1.1, seed 0)", "KeyError: 'nobody'")
    assert isinstance(fine, TaskResult)


def test_a_process_that_dies_is_reported(tmp_path: Path) -> None:
    problem = steep(tmp_path)
    deadly = Deadly(problem.source, problem.surface)
    (lost,) = run_all([Job(task(deadly))], 2, lambda _: None)
    assert isinstance(lost, Failure)
    assert "its process died" in lost.error
