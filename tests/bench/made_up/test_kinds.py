"""Made-up surfaces: equal for equal seeds, worth tuning, and with the difficulties of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest

from jouletune_bench.replay.names import roles_of
from tests.bench.contest.contest import ContestTerms, jobs_of, narrowed, standings
from tests.bench.contest.replay import Task, TaskResult, replay
from tests.bench.contest.surfaces import WORTH_TUNING, SurfaceProblem
from tests.bench.made_up.kinds import ACCURACY, KINDS, made_up, misnamed
from tests.bench.made_up.neutral import FUNCTIONS
from tuner.core import Kind, Limit, Role, Setting, quantity_of, setting_key

NEUTRAL = [function.__name__ for function in FUNCTIONS]
EVERY = made_up(3, 2 * len(KINDS))


def of(kind: str) -> list[SurfaceProblem]:
    return [problem for problem in EVERY if problem.source == kind]


def along(problem: SurfaceProblem, knob: str) -> list[Setting]:
    """Return the settings that move one knob from the baseline."""
    space = problem.surface.space
    return [{**space.default, knob: value} for value in space.knob(knob).values]


def latencies(problem: SurfaceProblem, settings: Sequence[Setting]) -> list[float]:
    return [problem.surface.values[setting_key(s)]["latency_ms"] for s in settings]


def test_a_seed_determines_everything_and_more_surfaces_keep_the_first() -> None:
    assert made_up(3, 2 * len(KINDS)) == EVERY
    few = made_up(3, 5)
    assert [p.source for p in few] == list(KINDS)[:5]
    assert all(problem in EVERY for problem in few)
    digests = {p.surface.digest for p in (*EVERY, *made_up(4, 2 * len(KINDS)))}
    assert len(digests) == 4 * len(KINDS)


@pytest.mark.parametrize("seed", range(6))
def test_every_surface_can_be_tuned(seed: int) -> None:
    for problem in made_up(seed, len(KINDS)):
        default = problem.surface.space.default
        assert WORTH_TUNING <= problem.saving(1.1) <= problem.saving(1.25) < 1.0
        assert problem.excess(default, 1.0) == 0.0
        assert problem.captured(default, 1.1) == 0.0
        for row in problem.surface.values.values():
            assert all(0.0 < value < 1e9 for value in row.values())
            assert row.get("power_w", 1.0) > 0.5


def test_a_queue_multiplies_the_latency_only_where_a_worker_is_missing() -> None:
    for problem in of("queue"):
        times = latencies(problem, along(problem, "threads"))
        steps = [fewer / more for fewer, more in pairwise(times)]
        assert max(steps) > 3.0, "one step down and requests pile up"
        assert min(steps) < 1.1, "elsewhere a worker changes nothing"


def test_a_batch_past_a_tile_often_costs_more_than_the_one_before() -> None:
    tiled = [p for seed in range(8) for p in made_up(seed, 3) if p.source == "tiles"]
    rises = 0
    for problem in tiled:
        energies = [problem.objective(s) for s in along(problem, "batch_size")]
        rises += any(more > less for less, more in pairwise(energies))
        assert min(energies) < energies[0], "filling a tile saves"
    assert rises > len(tiled) / 2


def test_a_clock_beyond_the_cooling_is_not_faster() -> None:
    slower_on_top = 0
    for problem in (p for seed in range(8) for p in made_up(seed, 4) if p.source == "throttling"):
        times = latencies(problem, along(problem, "gpu_clock_mhz"))
        slower_on_top += min(times) < times[-1]
    assert slower_on_top, "some device is slower at its highest clock than below it"


def test_a_runtime_has_an_accuracy_that_some_settings_break() -> None:
    for problem in of("runtime"):
        (limit,) = [x for x in problem.limits(1.1) if x.metric == ACCURACY]
        accuracies = [row[ACCURACY] for row in problem.surface.values.values()]
        baseline = problem.surface.values[setting_key(problem.surface.space.default)][ACCURACY]
        assert limit == Limit(ACCURACY, ">=", limit.value)
        assert 0.98 * baseline <= limit.value <= 0.99 * baseline
        assert max(accuracies) <= 1.0
        words = {type(v) for k in problem.surface.space.knobs for v in k.values}
        assert {str, bool} <= words
    broken = [
        problem.excess(dict(key), 1.1)
        for seed in range(6)
        for problem in made_up(seed, 8)
        if problem.source == "runtime"
        for key, row in problem.surface.values.items()
        if not all(x.holds(row[x.metric]) for x in problem.limits(1.1) if x.metric == ACCURACY)
    ]
    assert broken
    assert min(broken) > 0.0


def test_names_are_meaningless_or_misleading() -> None:
    for problem in (p for kind in ("nameless", *NEUTRAL) for p in of(kind)):
        assert {k.role for k in problem.surface.space.knobs} == {Role.UNKNOWN}
    for problem in (p for kind in NEUTRAL for p in of(kind)):
        assert {quantity_of(m).kind for m in problem.surface.metrics} == {Kind.OTHER}
        assert 2_000 <= problem.surface.space.size <= 8_000
    for problem in of("misnamed"):
        assert Role.UNKNOWN not in {k.role for k in problem.surface.space.knobs}
    true = ("threads", "cpu_clock_mhz")
    for seed in range(20):
        roles = roles_of(misnamed(true, Random(seed)).values())
        assert all(
            wrong is not right
            for wrong, right in zip(roles.values(), roles_of(true).values(), strict=True)
        )


def test_wrong_standard_errors_are_given_to_every_tuner() -> None:
    assert {p.told for p in of("told_too_sure")} == {0.3}
    assert {p.told for p in of("told_too_unsure")} == {2.0}
    assert {p.told for p in of("queue")} == {1.0}


def test_a_few_problems_are_drawn_from_each_source() -> None:
    terms = ContestTerms(
        tuners=("sobol",), budgets=(3,), slacks=(1.1,), noise=0.02, seeds=1, own_baseline=False
    )
    few = narrowed(EVERY, terms, ("queue", "tiles"), 1)
    assert [p.source for p in few] == ["queue", "tiles"]
    assert narrowed(EVERY, terms, ("queue", "tiles"), 1) == few
    assert narrowed(EVERY, terms) == list(EVERY)


@pytest.mark.parametrize("kind", list(KINDS))
def test_nothing_is_deployed_that_is_far_beyond_its_limits(kind: str) -> None:
    """A small second track. Far means five times a window's noise, which is not chance."""
    (problem,) = [p for p in made_up(0, len(KINDS)) if p.source == kind]
    terms = ContestTerms(
        tuners=("ours", "ours-strict"), budgets=(3, 6), slacks=(1.1,), noise=0.02, seeds=1
    )
    jobs = jobs_of([problem], terms)
    results = [replay(job.task) for job in jobs]
    for look in (look for result in results for look in result.checkpoints):
        assert look.excess <= 0.1
        assert look.captured > -0.5
    found = standings(jobs, results, terms)
    assert [(r.tuner, r.source) for r in found.by_source if r.budget == 6] == [
        ("ours", kind),
        ("ours-strict", kind),
    ]


def test_the_same_study_twice_is_the_same() -> None:
    problem = of("runtime")[0]
    task = Task(tuner="sobol", problem=problem, slack=1.1, seed=1, budgets=(4,))

    def once() -> TaskResult:
        return replay(task)

    first, second = once().checkpoints[0], once().checkpoints[0]
    assert (first.captured, first.overshoot) == (second.captured, second.overshoot)
