"""One replayed study: its scores by budget, its noise, and forbidden answers of a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.bench.contest.replay import Task, replay
from tests.bench.contest.surfaces import SurfaceProblem, load_problems
from tests.bench.contest.tables import at, steep, write_tables
from tests.bench.contest.tuners import TUNERS
from tests.errors import raised
from tuner.core import (
    Done,
    OutOfRange,
    Past,
    Phase,
    Plan,
    Safety,
    Setting,
    Suggestion,
    Try,
    TuningError,
    Wait,
    setting_key,
)

LIST = (at(500, 1), at(1000, 4), at(500, 2), at(500, 4))


@dataclass
class Scripted:
    """Tries a list and deploys the last of it; records its pasts."""

    settings: tuple[Setting, ...] = LIST
    stops_after: int = 99
    end: Callable[[Setting], Suggestion] = lambda last: Done(Plan.single(last), "enough")
    pasts: list[Past] = field(default_factory=list)

    def suggest(self, past: Past) -> Suggestion:
        self.pasts.append(past)
        tried = [t.setting for t in past.trials if t.phase is Phase.TUNING]
        if len(tried) < min(past.study.terms.trials, self.stops_after):
            return Try(self.settings[len(tried)], "next on the list")
        return self.end(tried[-1])


@pytest.fixture
def problem(tmp_path: Path) -> SurfaceProblem:
    return steep(tmp_path)


def task(problem: SurfaceProblem, **changes: object) -> Task:
    fields = {"tuner": "ours", "problem": problem, "slack": 1.1, "seed": 0, "budgets": (1, 2, 4)}
    return Task(**{**fields, "noise": 0.0, **changes})  # type: ignore[arg-type]


def played(policy: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.contest.tuners.load_tuner", lambda _: policy)


def test_each_budget_is_scored_by_the_true_table(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(Scripted(), monkeypatch)
    first, second, last = replay(task(problem)).checkpoints
    assert (first.budget, first.wrong, first.windows_above) == (1, False, 0)
    assert first.captured == pytest.approx(0.5)
    assert (second.captured, second.wrong, second.violations) == (0.0, True, 0.5)
    assert second.overshoot == pytest.approx(1.5 / 1.1 - 1.0)
    assert (last.captured, last.wrong, last.violations) == (0.0, True, 0.5)
    assert (second.windows_above, last.windows_above) == (1, 2)
    assert last.overshoot == pytest.approx(1.5 / 1.1 - 1.0)
    assert last.above_s == 20.0
    assert last.above_aborting_s == 10.5, "1.2 s is less than a tenth above the limit of 1.1 s"


def test_noise_delays_the_abort(problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    played(Scripted((at(1000, 4),)), monkeypatch)
    looks = [
        replay(task(problem, budgets=(1,), noise=noise)).checkpoints[0].above_aborting_s
        for noise in (0.0, 0.02, 0.05)
    ]
    assert looks == sorted(looks)
    assert looks[0] == 0.5 < looks[-1] < 10.0


def test_a_study_that_ends_early_keeps_its_deployed_setting(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Scripted((at(500, 1), at(500, 2)), stops_after=2)
    played(policy, monkeypatch)
    looks = replay(task(problem, budgets=(1, 2, 3, 9))).checkpoints
    assert [c.captured for c in looks] == pytest.approx([0.5, 1.0, 1.0, 1.0])
    assert max(len(p.trials) for p in policy.pasts) == 3


def test_the_policy_sees_one_baseline_window_and_the_true_limit(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Scripted()
    played(policy, monkeypatch)
    replay(task(problem, tuner="ours-strict", noise=0.02))
    study = policy.pasts[0].study
    assert [str(c) for c in study.constraints] == [str(x) for x in problem.limits(1.1)]
    assert (study.phase, study.terms.trials) == (Phase.TUNING, 4)
    assert study.terms.safety is Safety.STRICT
    (baseline,) = policy.pasts[0].trials
    assert (baseline.phase, baseline.setting) == (Phase.BASELINE, at(1000, 2))
    shown = baseline.shown["latency_ms"]
    assert shown.mean != 1000.0
    assert shown.stderr != pytest.approx(0.02 * shown.mean), "nobody is told the true noise"
    assert 0.25 < shown.stderr / (0.02 * shown.mean) < 2.5
    assert shown.low < shown.mean < shown.high


def test_with_its_own_baseline_the_limit_is_as_noisy_as_the_score_is_not(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Scripted()
    played(policy, monkeypatch)
    replayed = replay(task(problem, own_baseline=True, noise=0.02))
    past = policy.pasts[0]
    assert [str(c) for c in past.study.constraints] == ["latency_ms <= 1.1x baseline"]
    assert [t.phase for t in past.trials] == [Phase.BASELINE] * 2
    assert past.trials[0].shown != past.trials[1].shown
    assert [c.wrong for c in replayed.checkpoints] == [False, True, True]


def test_every_tuner_meets_the_same_noise_and_a_repeat_meets_a_fresh_one(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def windows(order: tuple[Setting, ...], **changes: object) -> dict[object, list[float]]:
        policy = Scripted(order)
        played(policy, monkeypatch)
        replay(task(problem, noise=0.02, budgets=(len(order),), **changes))
        windows_by_setting: dict[object, list[float]] = {}
        for trial in policy.pasts[-1].trials:
            means = [e.mean for e in trial.shown.values()]
            windows_by_setting.setdefault(setting_key(trial.setting), []).extend(means)
        return windows_by_setting

    one = windows((at(500, 1), at(500, 2), at(500, 1)))
    other = windows((at(500, 2), at(500, 1), at(500, 1)), tuner="sobol", slack=1.25)
    assert one == other
    assert len(set(one[setting_key(at(500, 1))])) == 4, "two windows of two metrics, all fresh"
    assert windows((at(500, 1),), seed=1) != windows((at(500, 1),))


def test_waiting_without_a_running_trial_rests_at_the_baseline(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(Scripted(stops_after=1, end=lambda _: Wait("nothing is safe")), monkeypatch)
    looks = replay(task(problem)).checkpoints
    assert [c.captured for c in looks] == [0.0, 0.0, 0.0]
    assert not any(c.wrong for c in looks)


def test_a_policy_that_leaves_the_table_or_does_not_end_is_an_error(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(Scripted((at(700, 2),)), monkeypatch)
    with pytest.raises(OutOfRange):
        replay(task(problem))
    played(Scripted(end=lambda last: Try(last, "one more")), monkeypatch)
    with raised(TuningError, "all 1"):
        replay(task(problem))


def test_a_flat_surface_mostly_ends_at_the_baseline_and_then_claims_nothing(tmp_path: Path) -> None:
    flat = load_problems(write_tables(tmp_path))[1]
    ends = []
    for seed in range(16):
        whole = task(flat, tuner="hillclimb", noise=0.02, seed=seed)
        ending = replay(whole, to_the_end=True).ending
        assert ending is not None
        assert abs(ending.true) <= 0.002
        ends.append(ending)
    at_rest = [e for e in ends if e.at_baseline]
    assert len(at_rest) > 8
    assert {(e.claimed, e.true) for e in at_rest} == {(0.0, 0.0)}
    assert all(e.claimed > 0.0 for e in ends if not e.at_baseline)


def test_a_real_saving_is_confirmed_and_claimed_by_the_production_steps(
    problem: SurfaceProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(Scripted((at(500, 2),)), monkeypatch)
    whole = task(problem, slack=1.25, budgets=(1,), noise=0.01)
    ending = replay(whole, to_the_end=True).ending
    assert ending is not None
    assert not ending.at_baseline
    assert ending.true == pytest.approx(0.2)
    assert ending.claimed != ending.true
    assert ending.claimed == pytest.approx(ending.true, abs=4.0 * ending.claimed_stderr)


@pytest.mark.parametrize("tuner", list(TUNERS))
def test_every_tuner_runs_and_repeats_itself_exactly(problem: SurfaceProblem, tuner: str) -> None:
    def once() -> list[object]:
        replayed = replay(task(problem, tuner=tuner, noise=0.02, budgets=(2, 3)))
        return [replace(c, seconds=0.0) for c in replayed.checkpoints]

    assert once() == once()
