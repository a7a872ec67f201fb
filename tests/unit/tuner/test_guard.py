"""Safe to try, safe to hold, abort now."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.builders import knob, setting, study, trial, window
from tuner import guard
from tuner.core import (
    NO_ANSWER,
    Cost,
    Estimate,
    Evidence,
    Limit,
    Part,
    Phase,
    Prediction,
    Safety,
    Setting,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
    weigh,
)

LIMIT = Limit("latency_p99_ms", "<=", 100.0)
BASE = trial(1, setting(), window(10.0, 100.0), phase=Phase.BASELINE)


def p99(mean: float, low: float, high: float) -> dict[str, Estimate]:
    return {"latency_p99_ms": Estimate(mean, 1.0, 300, low, high)}


def test_a_window_is_cut_short_only_beyond_doubt() -> None:
    assert guard.clearly_broken(p99(130, 120, 140), [LIMIT]) == LIMIT
    assert guard.clearly_broken(p99(105, 102, 108), [LIMIT]) is None  # proven, but at the edge
    assert guard.clearly_broken(p99(130, 90, 170), [LIMIT]) is None  # far, but not proven
    assert guard.clearly_broken({}, [LIMIT]) is None


def test_a_lower_limit_is_guarded_from_the_other_side() -> None:
    floor = Limit("throughput_per_s", ">=", 100.0)
    slow = {"throughput_per_s": Estimate.of_mean(50.0, 1.0, 10)}
    assert guard.clearly_broken(slow, [floor]) == floor


def test_only_proven_settings_may_be_held() -> None:
    assert guard.may_hold(p99(90, 80, 99), [LIMIT])
    assert not guard.may_hold(p99(90, 80, 101), [LIMIT])
    assert not guard.may_hold(p99(90, 80, 99), None)
    assert guard.may_hold({}, [])


def test_the_guard_refuses_settings_outside_broken_or_failing() -> None:
    trials = [
        BASE,
        trial(2, setting(400), window(4.0, 200.0)),
        trial(3, setting(600), state=TrialState.FAILED, reason="clock refused"),
        trial(4, setting(600), state=TrialState.FAILED, reason="clock refused"),
    ]
    evidence = weigh(study(), trials)

    def say(at: dict[str, float]) -> str | None:
        return guard.objection(study(), evidence, trials, at)

    assert say({"gpu.clock_mhz": 700, "batch_size": 1}) is not None
    assert "breaks latency_p99_ms <= 120" in str(say({"gpu.clock_mhz": 400, "batch_size": 1}))
    assert "failed 2 times; last reason: clock refused" in str(
        say({"gpu.clock_mhz": 600, "batch_size": 1})
    )
    assert say({"gpu.clock_mhz": 800, "batch_size": 1}) is None


THREADS, BATCH = "--threads", "--batch"
FLAGS = Space(
    (
        knob("gpu.clock_mhz", (400, 1000), 1000),
        knob(THREADS, (1, 2, 64), 2, Part.WORKLOAD, Cost(restart=True)),
        knob(BATCH, (32, 64, 99), 64, Part.WORKLOAD, Cost(restart=True)),
    )
)


def flags(clock: int, threads: int, batch: int) -> Setting:
    return {"gpu.clock_mhz": clock, THREADS: threads, BATCH: batch}


def test_a_value_alone_at_fault_for_a_start_that_failed_is_not_tried_again() -> None:
    tuned = study(space=FLAGS)
    silent = f"llm.service {NO_ANSWER}: 300 s without an answer"

    def failed(number: int, at: Setting, reason: str = silent) -> Trial:
        return trial(number, at, state=TrialState.FAILED, reason=reason)

    def refused(*trials: Trial) -> set[int | str]:
        evidence = weigh(tuned, [])
        tried = [flags(400, 64, 32), flags(400, 1, 99), flags(400, 1, 32)]
        said = [guard.objection(tuned, evidence, trials, at) for at in tried]
        assert all(NO_ANSWER in why for why in said if why)
        return {n for n, why in enumerate(said) if why}

    assert refused(failed(2, flags(1000, 64, 64))) == {0}, "the baseline's batch works"
    assert refused(failed(2, flags(400, 64, 64))) == {0}, "a clock restarts nothing"
    assert refused(failed(2, flags(1000, 64, 99))) == set(), "either may be at fault"
    assert refused(failed(2, flags(1000, 64, 99)), failed(3, flags(1000, 1, 99))) == {1}, "common"
    works = trial(3, flags(1000, 1, 99), window(5.0, 90.0))
    assert refused(failed(2, flags(1000, 64, 99)), works) == {0}, "99 works beside another"
    both = trial(4, flags(400, 64, 32), window(5.0, 90.0))
    assert refused(failed(2, flags(1000, 64, 99)), works, both) == set(), "only together"
    assert refused(failed(2, flags(1000, 64, 64), "the clock was refused")) == set()


SHYEST_FIRST = (Safety.STRICT, Safety.BALANCED, Safety.OFF)
FLOOR = Limit("throughput_per_s", ">=", 100.0)


def asked(safety: Safety) -> Study:
    return study(terms=Terms(safety=safety))


def under(*limits: Limit, latency_p99_ms: float = 90.0) -> Evidence:
    """Return the past of a study with these limits and only a baseline."""
    return Evidence(p99(latency_p99_ms, latency_p99_ms, latency_p99_ms), limits, (), 1)


@pytest.mark.parametrize(("limit", "sign"), [(LIMIT, 1.0), (FLOOR, -1.0)])
def test_the_chance_to_keep_a_limit_is_that_of_draws(limit: Limit, sign: float) -> None:
    predicted = Prediction(100.0 - sign * 4.0, 10.0)
    draws = np.random.default_rng(3).normal(predicted.mean, predicted.sd, 200_000)
    kept = np.mean([sign * (d - limit.value) <= 0.0 for d in draws])
    assert guard.chance(predicted, limit) == pytest.approx(kept, abs=0.005)


@pytest.mark.parametrize(("limit", "sign"), [(LIMIT, 1.0), (FLOOR, -1.0)])
def test_a_lognormal_metric_is_not_read_as_normal(limit: Limit, sign: float) -> None:
    rng = np.random.default_rng(4)
    draws = rng.lognormal(np.log(100.0) - sign * 0.1, 0.6, 400_000)
    predicted = Prediction(float(draws.mean()), float(draws.std()), lognormal=True)
    kept = np.mean([sign * (d - limit.value) <= 0.0 for d in draws])
    assert guard.chance(predicted, limit) == pytest.approx(kept, abs=0.01)
    assert abs(guard.chance(replace(predicted, lognormal=False), limit) - kept) > 0.05


@pytest.mark.parametrize("limit", [LIMIT, FLOOR])
def test_at_the_limit_the_chance_is_even_and_certainty_settles_it(limit: Limit) -> None:
    assert guard.chance(Prediction(100.0, 10.0), limit) == pytest.approx(0.5)
    for value in (99.0, 100.0, 101.0):
        assert guard.chance(Prediction(value, 0.0), limit) == float(limit.holds(value))
        assert guard.chance(Prediction(value, 1e-9), limit) in (0.0, 0.5, 1.0)


def test_a_setting_predicted_to_break_a_limit_is_refused_with_the_limit() -> None:
    hopeless = {"latency_p99_ms": Prediction(150.0, 10.0)}
    for safety in (Safety.STRICT, Safety.BALANCED):
        refusal = guard.risk(asked(safety), under(LIMIT), hopeless)
        assert refusal is not None
        assert "latency_p99_ms <= 100 " in refusal
        assert str(safety) in refusal
    assert guard.risk(asked(Safety.OFF), under(LIMIT), hopeless) is None


def test_one_predicted_breach_is_enough_for_a_risk() -> None:
    predicted = {
        "latency_p99_ms": Prediction(50.0, 1.0),
        "throughput_per_s": Prediction(50.0, 1.0),
    }
    assert "throughput_per_s >= 100 " in str(guard.risk(study(), under(LIMIT, FLOOR), predicted))
    assert guard.risk(study(), under(LIMIT), predicted) is None


@pytest.mark.parametrize("safety", SHYEST_FIRST)
def test_a_setting_that_may_repair_a_broken_limit_is_not_refused(safety: Safety) -> None:
    even = {"latency_p99_ms": Prediction(102.0, 2.0)}
    hopeless = {"latency_p99_ms": Prediction(110.0, 2.0)}
    broken = under(LIMIT, latency_p99_ms=120.0)
    assert guard.risk(asked(safety), broken, even) is None
    assert (guard.risk(asked(safety), broken, hopeless) is None) == (safety is Safety.OFF)


@pytest.mark.parametrize("safety", SHYEST_FIRST)
def test_settings_without_a_bad_prediction_are_not_refused(safety: Safety) -> None:
    assert guard.risk(asked(safety), under(LIMIT), {}) is None
    assert guard.risk(asked(safety), under(LIMIT), {"energy_j": Prediction(1e6, 1.0)}) is None
    assert (
        guard.risk(asked(safety), under(LIMIT), {"latency_p99_ms": Prediction(90.0, 1.0)}) is None
    )


@pytest.mark.parametrize("mean", [60.0, 90.0, 100.0, 110.0, 125.0, 300.0])
def test_a_shy_study_refuses_all_settings_that_a_bold_one_refuses(mean: float) -> None:
    predicted = {"latency_p99_ms": Prediction(mean, 10.0)}
    refused = [guard.risk(asked(s), under(LIMIT), predicted) is not None for s in SHYEST_FIRST]
    assert refused == sorted(refused, reverse=True)


def test_a_shyer_guard_refuses_no_less() -> None:
    least = [guard.REFUSED[safety] for safety in SHYEST_FIRST]
    assert least == sorted(least, reverse=True) and set(guard.REFUSED) == set(Safety)


def test_uncertain_limits_may_still_be_proven() -> None:
    limit = Limit("energy_j", "<=", 10.0)

    def energy(mean: float) -> dict[str, Estimate]:
        return {"energy_j": Estimate.of_mean(mean, 0.1, 10)}

    assert guard.may_be_shown(energy(9.9), [limit])
    assert guard.may_be_shown(energy(5.0), [limit])
    assert not guard.may_be_shown(energy(10.05), [limit])
    assert not guard.may_be_shown(energy(12.0), [limit])
    assert guard.may_be_shown({"energy_j": Estimate(9.0, 1.0, 1, -math.inf, math.inf)}, [limit])
    assert not guard.may_be_shown({}, [limit])


def test_a_doubtful_tail_may_still_be_proven_if_its_windows_bound_it() -> None:
    assert guard.may_be_shown(p99(90, 80, 101), [LIMIT])
    assert not guard.may_be_shown(p99(101, 80, 105), [LIMIT])
    assert not guard.may_be_shown(p99(90, 80, math.inf), [LIMIT])
    least = Limit("throughput_p01_per_s", ">=", 100.0)
    unbounded = {"throughput_p01_per_s": Estimate(110.0, 1.0, 300, -math.inf, 120.0)}
    assert not guard.may_be_shown(unbounded, [least])
