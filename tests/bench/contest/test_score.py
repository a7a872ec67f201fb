"""Figures from studies: means over seeds and surfaces of a source, then equal weights of the sources."""

from __future__ import annotations

import pytest

from tests.bench.contest.replay import Checkpoint, Ending, TaskResult
from tests.bench.contest.score import (
    by_source,
    controls,
    mean,
    pairs,
    pairs_by_source,
    rows,
    seconds_above_limit,
    stderr,
)


def look(captured: float, violations: float = 0.0, **changes: object) -> Checkpoint:
    fields = {
        "budget": 5,
        "captured": captured,
        "excess": 0.0,
        "windows_above": 0,
        "violations": violations,
        "overshoot": 0.0,
        "seconds": 0.1,
        "above_s": 0.0,
        "above_aborting_s": 0.0,
    }
    return Checkpoint(**{**fields, **changes})  # type: ignore[arg-type]


def outcome(tuner: str, source: str, surface: str, seed: int, *looks: Checkpoint) -> TaskResult:
    return TaskResult(
        tuner=tuner, source=source, surface=surface, slack=1.1, seed=seed, checkpoints=looks
    )


def test_a_source_counts_once_however_many_surfaces_it_has() -> None:
    samples = [("a", "1", 0.2), ("a", "1", 0.4), ("a", "2", 0.5), ("b", "1", 1.0)]
    assert mean(samples) == pytest.approx((0.4 + 1.0) / 2.0)


def test_the_standard_error_is_of_surfaces_within_sources() -> None:
    samples = [("a", "1", 0.2), ("a", "1", 0.4), ("a", "2", 0.5), ("b", "1", 0.8), ("b", "1", 1.0)]
    of_a, of_b = 0.02 / 2.0, 0.02 / 2.0  # surfaces 0.3 and 0.5; seeds 0.8 and 1.0
    assert stderr(samples) == pytest.approx((of_a + of_b) ** 0.5 / 2.0)
    assert stderr([("a", "1", 0.2), ("b", "1", 0.3), ("b", "2", 0.4)]) is None


def test_rows_are_per_tuner_slack_and_budget_and_per_source() -> None:
    found = [
        outcome(
            "ours", "a", "1", 0, look(0.2, 0.5, excess=0.1, windows_above=3), look(0.6, budget=8)
        ),
        outcome("ours", "a", "1", 1, look(0.4, overshoot=0.3), look(0.8, budget=8)),
        outcome("ours", "b", "1", 0, look(0.9), look(1.0, budget=8)),
    ]
    five, eight = rows(found)
    assert (five.budget, five.surfaces) == (5, 2)
    assert five.captured == pytest.approx(0.6)
    assert five.violations == pytest.approx(0.125)
    assert five.wrong_deployments == pytest.approx(0.25)
    assert five.overshoot == pytest.approx(0.075)
    assert five.worst_overshoot == 0.3
    assert five.windows_above == pytest.approx((1.5 + 0.0) / 2.0)
    assert five.seconds_per_suggestion == pytest.approx(0.1)
    assert five.captured_stderr is None, "source b has a single number"
    assert eight.captured == pytest.approx(0.85)
    of_a, of_b = [r for r in by_source(found) if r.budget == 5]
    assert (of_a.source, of_a.surfaces) == ("a", 1)
    assert of_a.captured == pytest.approx(0.3)
    assert of_a.captured_stderr == pytest.approx(0.1)
    assert (of_b.source, of_b.surfaces, of_b.captured) == ("b", 1, 0.9)


def test_pairs_are_of_the_same_surface_and_seed() -> None:
    found = [
        outcome("ours", "a", "1", 0, look(0.9, windows_above=1)),
        outcome("ours", "a", "2", 0, look(0.5, windows_above=1)),
        outcome("rival", "a", "1", 0, look(0.6, windows_above=4)),
        outcome("rival", "a", "2", 0, look(0.4, windows_above=6)),
        outcome("rival", "a", "3", 0, look(0.0, windows_above=9)),
        outcome("careful", "a", "1", 0, look(0.1)),
    ]
    rival, careful = pairs(found)
    assert (rival.rival, rival.studies, rival.surfaces) == ("rival", 2, 2)
    assert rival.difference == pytest.approx(0.2)
    assert rival.difference_stderr == pytest.approx((0.02 / 2.0) ** 0.5)
    assert rival.windows_ratio == pytest.approx(0.2)
    assert careful.windows_ratio is None
    assert pairs(found[2:]) == []


def test_pooled_pairs_count_every_surface_alike_and_every_seed_within_it() -> None:
    ours = {("a", "1"): (0.9, 0.7), ("a", "2"): (0.6,), ("b", "1"): (0.5,)}
    found = [
        outcome(tuner, source, surface, seed, look(captured - loss))
        for tuner, loss in (("ours", 0.0), ("rival", 0.4))
        for (source, surface), seeds in ours.items()
        for seed, captured in enumerate(seeds)
        for loss in (loss if source == "a" else 0.0,)
    ]
    (rival,) = pairs(found)
    assert rival.difference == pytest.approx(0.2), "two sources alike"
    assert rival.pooled == pytest.approx(0.8 / 3.0), "three surfaces alike"
    assert rival.pooled_stderr == pytest.approx((0.16 / 3.0 / 3.0) ** 0.5)
    of_a, of_b = pairs_by_source(found)
    assert (of_a.source, of_a.surfaces, of_a.studies) == ("a", 2, 3)
    assert of_a.difference == of_a.pooled == pytest.approx(0.4)
    assert of_a.difference_stderr == pytest.approx(0.0, abs=1e-9)
    assert (of_b.source, of_b.difference, of_b.difference_stderr) == ("b", 0.0, None)


def test_seconds_above_the_limit_are_per_study() -> None:
    found = [
        outcome("ours", "a", "1", 0, look(1.0, above_s=20.0, above_aborting_s=3.0)),
        outcome("ours", "a", "1", 1, look(1.0, above_s=10.0, above_aborting_s=1.0)),
    ]
    (late,) = seconds_above_limit(found)
    assert (late.seconds, late.with_early_abort) == (15.0, 2.0)


def test_controls_distinguish_claims_from_truth() -> None:
    def ended(at_baseline: bool, claimed: float, true: float) -> TaskResult:
        ending = Ending(
            at_baseline=at_baseline,
            trials=20 if claimed else 4,
            windows_above=int(not claimed),
            claimed=claimed,
            claimed_stderr=0.01,
            true=true,
            wrong=False,
        )
        return TaskResult(
            tuner="ours", source="a", surface="1", slack=1.1, seed=0, checkpoints=(), ending=ending
        )

    (control,) = controls([ended(True, 0.0, 0.0), ended(False, 0.04, 0.005)], noise=0.02)
    assert (control.studies, control.surfaces) == (2, 1)
    assert (control.at_baseline, control.overclaimed, control.within_noise) == (0.5, 0.5, 1.0)
    assert (control.claimed, control.true) == (0.02, 0.0025)
    assert (control.trials, control.windows_above) == (12.0, 0.5)
