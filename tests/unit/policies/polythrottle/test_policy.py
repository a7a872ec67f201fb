"""The policy's own suggestions, apart from the optimiser's predictions."""

from __future__ import annotations

from policies import load_policy
from tests.builders import asked, baseline, past, trial
from tuner.core import TrialState, Try


def test_a_failed_setting_is_not_the_next_to_be_tried() -> None:
    at, policy = asked(8), load_policy("polythrottle")
    trials = baseline(at)
    first = policy.suggest(past(at, trials))
    assert isinstance(first, Try)
    trials.append(trial(3, first.setting, state=TrialState.FAILED, reason="the clock was refused"))
    second = policy.suggest(past(at, trials))
    assert isinstance(second, Try)
    assert second.setting != first.setting
