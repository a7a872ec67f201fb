"""Safe to try, safe to hold, abort now."""

from __future__ import annotations

from tests.builders import setting, study, trial, window
from tuner import guard
from tuner.core import Estimate, Limit, Phase, TrialState, weigh

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


def test_only_what_is_proven_may_be_held() -> None:
    assert guard.may_hold(p99(90, 80, 99), [LIMIT])
    assert not guard.may_hold(p99(90, 80, 101), [LIMIT])
    assert not guard.may_hold(p99(90, 80, 99), None)
    assert guard.may_hold({}, [])


def test_the_guard_objects_to_what_is_outside_broken_or_failing() -> None:
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
    assert "limit broken" in str(say({"gpu.clock_mhz": 400, "batch_size": 1}))
    assert "failed 2 times: clock refused" in str(say({"gpu.clock_mhz": 600, "batch_size": 1}))
    assert say({"gpu.clock_mhz": 800, "batch_size": 1}) is None
