"""What the policy suggests of its own, beside what the optimiser believes."""

from __future__ import annotations

from policies import load_policy
from tests.builders import asked, baseline, past, trial
from tuner.core import TrialState, Try


def test_a_setting_that_failed_is_not_tried_again_in_the_same_breath() -> None:
    at, policy = asked(8), load_policy("polythrottle")
    trials = baseline(at)
    first = policy.suggest(past(at, trials))
    assert isinstance(first, Try)
    trials.append(trial(3, first.setting, state=TrialState.FAILED, reason="the clock was refused"))
    second = policy.suggest(past(at, trials))
    assert isinstance(second, Try)
    assert second.setting != first.setting
