from __future__ import annotations

from dataclasses import replace

from agents.federated.fleet.rounds import INTERVALS, federation_space
from policies.fedgpo.interval import ROUNDS, TOLERANCE, AveragingInterval
from tests.builders import past
from tests.errors import raised
from tests.unit.policies.fedgpo.made_up import MadeUp, federated, space
from tuner.core import Estimate, InvalidInput, Phase, Study, Trial, TrialState, Try, Wait

STEPS = "averaging_steps"
SMALL, MIDDLE = 0.2 * TOLERANCE, 1.5 * TOLERANCE
LARGE = 4.0 * TOLERANCE


def stepped() -> Study:
    return federated(space=federation_space(["high", "mid", "low"], INTERVALS))


def one(number: int, steps: int, loss: float | None) -> Trial:
    at = stepped()
    trial = MadeUp().round(number, {**at.baseline, STEPS: steps}, Phase.TUNING)
    assert trial.measurement is not None
    shown = dict(trial.measurement.estimates)
    if loss is not None:
        shown["skew_loss"] = Estimate.of_mean(loss, 0.0)
    phase = Phase.BASELINE if number < 3 else Phase.TUNING
    return replace(trial, phase=phase, measurement=replace(trial.measurement, estimates=shown))


def next_steps(*rounds: tuple[int, float | None]) -> object:
    trials = [one(n, steps, loss) for n, (steps, loss) in enumerate(rounds, 1)]
    answer = AveragingInterval().suggest(past(stepped(), trials))
    assert isinstance(answer, Try), answer
    changed = {k for k, v in answer.setting.items() if v != stepped().baseline[k]}
    assert changed <= {STEPS}
    return answer.setting[STEPS]


def test_while_skew_costs_little_it_averages_more_and_more_rarely() -> None:
    assert next_steps(*[(1, SMALL)] * ROUNDS) == 2
    assert next_steps(*[(1, SMALL)] * ROUNDS, *[(2, SMALL)] * ROUNDS) == 5
    assert next_steps(*[(1, SMALL)] * 2, *[(100, SMALL)] * ROUNDS) == 100


def test_where_skew_costs_much_it_averages_more_often() -> None:
    assert next_steps((1, SMALL), (1, SMALL), *[(20, LARGE)] * ROUNDS) == 10
    assert next_steps(*[(1, LARGE)] * ROUNDS) == 1


def test_in_between_and_after_a_change_it_stays() -> None:
    assert next_steps((1, SMALL), (1, SMALL), *[(20, MIDDLE)] * ROUNDS) == 20
    assert next_steps((1, SMALL), (1, SMALL), (20, SMALL)) == 20


def test_rounds_that_failed_or_tell_no_loss_are_not_judged() -> None:
    assert next_steps((1, SMALL), (1, SMALL), (1, None)) == 1
    trials = [one(n, 1, SMALL) for n in (1, 2)]
    failed = replace(one(3, 1, SMALL), state=TrialState.FAILED, measurement=None)
    answer = AveragingInterval().suggest(past(stepped(), [*trials, failed]))
    assert isinstance(answer, Try) and answer.setting[STEPS] == 1


def test_without_the_knob_or_the_baseline_it_says_so() -> None:
    with raised(InvalidInput, "averaging_steps"):
        AveragingInterval().suggest(past(federated(space=space()), []))
    assert isinstance(AveragingInterval().suggest(past(stepped(), [])), Wait)
