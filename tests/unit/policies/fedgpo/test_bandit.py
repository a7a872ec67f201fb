from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from policies.fedgpo.bandit import Bandit
from policies.fedgpo.costs import RoundCosts
from policies.fedgpo.curve import ErrorCurve
from policies.fedgpo.federation import Federation, Round, rounds
from policies.fedgpo.fitting import Array, Prior, fitted
from policies.fedgpo.goals import TrainingGoal
from tests.builders import past
from tests.unit.policies.fedgpo.made_up import (
    CLASSES,
    MadeUp,
    federated,
    situation,
    space,
    started,
)
from tuner.core import Done, Objective, Past, Phase, Role, Setting, Space, Trial, TrialState, Try

USUAL = np.zeros((1, 3))
GRID = [
    {"participants": k} | {f"{what}.{c}": v for c in CLASSES for what, v in same.items()}
    for k in (10, 20, 50)
    for same in ({"batch_size": b, "local_epochs": e} for b in (8, 16, 32) for e in (1, 5, 10))
]


def test_weights_are_found_and_their_doubt_forgotten() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(200), rng.normal(size=200)])
    values = np.exp(features @ [0.5, -0.4]) + rng.normal(scale=0.1, size=200)
    prior = Prior(np.zeros(2), np.ones(2))
    fit = fitted(lambda w: np.exp(w @ features.T), values, np.full(200, 0.1), prior)
    assert fit.mean == pytest.approx([0.5, -0.4], abs=0.05)
    assert np.sqrt(np.diag(fit.cov)).max() < 0.02


def test_without_data_the_prior_is_left() -> None:
    prior = Prior(np.array([1.0, 3.0]), np.array([0.1, 0.2]))
    fit = fitted(lambda w: np.zeros((len(w), 0)), np.zeros(0), np.zeros(0), prior)
    assert fit.mean == pytest.approx(prior.mean)
    assert np.sqrt(np.diag(fit.cov)) == pytest.approx(prior.sd)


def cost(participants: float, batch: float, local: float) -> dict[str, float]:
    """Return the costs of a round by part, without noise: among more clients the slowest is slower."""
    busy = local * (1.0 + 4.0 / batch)
    slowest = (participants / 10.0) ** 0.3
    parts = {"compute_j": 2.0 * busy, "communication_j": 30.0, "waiting_j": 5.0}
    by_part = {name: participants * joules for name, joules in parts.items()}
    return {
        **by_part,
        "energy_j": sum(by_part.values()),
        "round_s": slowest * (40.0 + 3.0 * busy),
    }


def one(before: float = 0.1, accuracy: float = 0.2, **shown: float) -> Round:
    return Round(1, {}, {}, 1.0, {}, before, accuracy, shown or cost(10, 8, 1))


def works(*each: tuple[float, float, float]) -> Array:
    return np.array(each)[:, None, :]


def learned(*each: tuple[float, float, float], only: tuple[str, ...] = ()) -> RoundCosts:
    shown = [{n: v for n, v in cost(*work).items() if n in only or not only} for work in each]
    return RoundCosts.of([one(**costs) for costs in shown], ["all"], works(*each))


def test_an_unmeasured_cell_is_predicted_from_its_parts() -> None:
    costs, other = learned((10, 8, 1), (10, 8, 5)), (20, 32, 10)
    for name in ("energy_j", "compute_j", "round_s"):
        predicted = costs.metric(name, costs.weights.mean[None, :], works(other))[0, 0]
        assert predicted == pytest.approx(cost(*other)[name], rel=0.2), name


def test_without_joules_seconds_are_learnt_alone() -> None:
    seen = [(10, 8, 1), (10, 8, 10)]
    costs = learned(*seen * 3, only=("round_s",))
    predicted = costs.metric("round_s", costs.weights.mean[None, :], works(*seen))[0]
    assert predicted == pytest.approx([cost(*work)["round_s"] for work in seen], rel=0.25)


def test_a_class_that_is_slower_is_found_and_its_local_work_predicted() -> None:
    def shown(local: tuple[float, float]) -> dict[str, float]:
        each = [10.0 + speed * e for speed, e in zip((1.0, 8.0), local, strict=True)]
        seconds = dict(zip(("slowest_car_s", "slowest_phone_s"), each, strict=True))
        joules = {"energy_car_j": 5 * 20.0 * local[0], "energy_phone_j": 5 * 2.0 * local[1]}
        return {**seconds, **joules, "round_s": max(each), "energy_j": sum(joules.values())}

    pairs = [(1.0, 1.0), (5.0, 5.0), (10.0, 10.0), (5.0, 1.0)]
    seen = np.array([[[5.0, 8.0, e] for e in local] for local in pairs])
    costs = RoundCosts.of([one(**shown(local)) for local in pairs], ["car", "phone"], seen)
    assert costs.difference(seen[2]) > 3.0
    unlike = np.array([[[5.0, 8.0, 10.0], [5.0, 8.0, 1.0]]])
    seconds = costs.metric("round_s", costs.weights.mean[None, :], unlike)[0, 0]
    assert 10.0 < seconds < 0.5 * shown(pairs[2])["round_s"]


def test_rounds_to_a_goal_follow_a_curve_that_saturates() -> None:
    left, series = 0.84, []
    for _ in range(12):
        before, left = 0.94 - left, left * math.exp(-0.15)
        series.append(one(before, 0.94 - left))
    curve = ErrorCurve.of(series, np.zeros((12, 3)), 0.9)
    mean = curve.weights.mean[None, :]
    at_end, error = curve.course(mean)
    assert at_end[0] == pytest.approx([r.accuracy for r in series], abs=0.02)
    rounds_left = curve.rounds_to(mean, error, 0.9, USUAL)[0, 0]
    assert rounds_left == pytest.approx(math.log(left / 0.04) / 0.15, rel=0.35)


def test_a_training_that_stalls_short_of_its_goal_is_not_thought_to_be_there_soon() -> None:
    course = [0.6 - 0.5 * math.exp(-0.4 * i) for i in range(31)]
    learnt = [one(b, a) for b, a in itertools.pairwise(course)]
    curve = ErrorCurve.of(learnt, np.zeros((30, 3)), 0.66)
    mean = curve.weights.mean[None, :]
    _, error = curve.course(mean)
    assert error[0] == pytest.approx(0.4, abs=0.02)
    near, middle, far = (
        curve.rounds_to(mean, error, goal, USUAL)[0, 0] for goal in (0.61, 0.66, 0.7)
    )
    assert middle > 10.0 and near < far


def faster(rounds_left: float | None, seed: int) -> float:
    """Return the decrease of the error in the round suggested after ten frugal rounds."""
    at = federated(seed, constraints=("accuracy >= 0.9",))
    frugal = {k.name: 1 if k.role is Role.LOCAL_EPOCHS else k.values[-1] for k in at.space.knobs}
    made, trials = MadeUp(seed, noise=0.05), list[Trial]()
    for number in range(1, 11):
        trials.append(made.round(number, {**frugal, "participants": 10}))
    left = {} if rounds_left is None else {"rounds_left": rounds_left}
    now = situation(at, trials, made)
    answer = Bandit().suggest(replace(now, context={**now.context, **left}))
    assert isinstance(answer, Try)
    return made.gain(answer.setting)


def test_where_few_rounds_are_left_a_dearer_setting_that_is_faster_is_taken() -> None:
    free, plenty, few = (
        math.fsum(faster(left, seed) for seed in range(6)) for left in (None, 500.0, 8.0)
    )
    assert free == plenty < few


class Course(MadeUp):
    """A training with given accuracies, whatever its settings."""

    def __init__(self, accuracies: list[float]) -> None:
        super().__init__(accuracy=accuracies[0], noise=0.0)
        self._ahead = iter(accuracies[1:])

    def gain(self, setting: Setting) -> float:
        return math.log((1.0 - self.accuracy) / (1.0 - next(self._ahead)))


def forecast(rng: np.random.Generator, rounds: int = 30) -> tuple[str, bool]:
    """Return the reason of a suggestion at half of a made-up training, and whether it gets there."""
    floor, rate, power = rng.uniform(0.02, 0.3), rng.uniform(0.05, 0.4), rng.uniform(0.0, 1.0)
    left, accuracies = 0.85 - floor, [0.15]
    for _ in range(rounds):
        left *= math.exp(-rate * (left / 0.5) ** power)
        accuracies.append(float(np.clip(1.0 - floor - left + rng.normal(0.0, 0.01), 0.01, 0.99)))
    goal = round(float(rng.uniform(accuracies[rounds // 2] - 0.03, 1.0 - floor + 0.05)), 3)
    knobs = tuple(replace(k, values=(k.default,)) for k in space().knobs)
    at = federated(space=Space(knobs), constraints=(f"accuracy >= {min(goal, 0.99)}",))
    made, trials = Course(accuracies), list[Trial]()
    for number in range(1, rounds // 2 + 1):
        trials.append(made.round(number, at.baseline))
    now = situation(at, trials, made)
    answer = Bandit().suggest(
        replace(now, context={**now.context, "rounds_left": float(rounds - rounds // 2)})
    )
    means = [math.fsum(accuracies[i - 2 : i + 1]) / 3.0 for i in range(2, len(accuracies))]
    return answer.why, max(means) >= goal


def test_forecasts_come_true_at_their_stated_rate_and_none_gives_up_too_early() -> None:
    rng = np.random.default_rng(7)
    found = [forecast(rng) for _ in range(80)]
    chances = [(re.search(r"a chance of ([\d.]+)", why), reached) for why, reached in found]
    sure = [reached for chance, reached in chances if chance and float(chance[1]) >= 0.9]
    assert len(sure) >= 10 and sum(sure) >= 0.9 * len(sure)
    hopeless = [reached for why, reached in found if "cannot be reached" in why]
    assert len(hopeless) >= 5 and not any(hopeless)


def stepped(failing: int = 0, constraints: tuple[str, ...] = ()) -> list[object]:
    """Return the averaging steps of the first rounds of a study, of which some at first fail."""
    role = Role.AVERAGING_STEPS
    steps = replace(
        space().knobs[0], name="averaging_steps", values=(1, 2, 5, 20, 100), default=1, role=role
    )
    at = federated(space=Space((*space().knobs, steps)), constraints=constraints)
    made = MadeUp()
    trials = [made.round(n, at.baseline, Phase.BASELINE) for n in (1, 2)]
    for number in range(3, 9):
        answer = Bandit().suggest(situation(at, trials, made))
        assert isinstance(answer, Try)
        done = made.round(number, answer.setting)
        if number < 3 + failing:
            done = replace(done, state=TrialState.FAILED, measurement=None)
        trials.append(done)
    return [t.setting["averaging_steps"] for t in trials[2:]]


@pytest.mark.parametrize("constraints", [(), ("round_s <= 9x baseline",)])
def test_each_rung_of_averaging_steps_is_run_from_the_longest_after_any_past(
    constraints: tuple[str, ...],
) -> None:
    assert stepped(constraints=constraints)[:2] == [100, 20]
    assert stepped(2, constraints=constraints)[:4] == [100, 100, 100, 20]


def test_a_rung_that_always_fails_is_dropped() -> None:
    assert stepped(6)[-1] == 20


def test_a_new_training_is_not_a_fall_of_the_curve() -> None:
    course = [0.3, 0.5, 0.6, 0.7, 0.2, 0.4, 0.55, 0.65]
    before = [0.1, 0.3, 0.5, 0.6, 0.1, 0.2, 0.4, 0.55]
    learnt = [one(b, a) for b, a in zip(before, course, strict=True)]
    curve = ErrorCurve.of(learnt, np.zeros((8, 3)), 0.9)
    seen, _ = curve.course(curve.weights.mean[None, :])
    assert seen[0] == pytest.approx(course, abs=0.15)


def spent(metric: str, at: Setting | None, seed: int = 0, goal: float = 0.9) -> float:
    """Return the cost of a goal in a metric: at one setting, or under fedgpo."""
    start = federated(seed, objective=Objective(metric), constraints=(f"accuracy >= {goal}",))
    policy, federation = Bandit(), Federation.of(start.space)
    made, trials = MadeUp(seed, noise=0.05), list[Trial]()
    wanted = TrainingGoal(goal, ())
    while not wanted.reached(rounds(past(start, trials), federation)):
        setting = at or policy.suggest(situation(start, trials, made)).setting  # type: ignore[union-attr]
        trials.append(made.round(len(trials) + 1, setting))
        assert len(trials) < 200
    assert isinstance(policy.suggest(situation(start, trials, made)), Done)
    return math.fsum(t.shown[metric].mean for t in trials)


@pytest.mark.parametrize("metric", ["energy_j", "round_s", "carbon_g"])
def test_the_goal_takes_hardly_more_than_the_best_fixed_setting_needs(metric: str) -> None:
    best = min(spent(metric, at) for at in GRID)
    assert spent(metric, None) < 1.3 * best


def test_the_minimised_metric_changes_the_setting() -> None:
    def most(metric: str) -> float:
        trials, _ = started(Bandit(), federated(objective=Objective(metric)), 12)
        return sum(float(t.setting["local_epochs.mid"]) for t in trials[4:])

    assert most("energy_j") < most("round_s")


class Unlike(MadeUp):
    """A federation whose last class trains at a twentieth of the others' speed."""

    def parts(self, setting: Setting) -> dict[str, float]:
        speeds = dict(zip(CLASSES, (1.0, 1.0, 20.0), strict=True))
        each = {n: 1.0 + s * float(setting[f"local_epochs.{n}"]) for n, s in speeds.items()}
        slowest = {f"slowest_{name}_s": seconds for name, seconds in each.items()}
        return {**super().parts(setting), **slowest, "round_s": max(each.values())}


@pytest.mark.parametrize("metric", ["energy_j", "round_s", "carbon_g"])
def test_only_for_the_least_seconds_do_differing_classes_get_their_own_settings(
    metric: str,
) -> None:
    made, at, trials = Unlike(), federated(objective=Objective(metric)), list[Trial]()
    for number in range(1, 13):
        answer = Bandit().suggest(situation(at, trials, made))
        assert isinstance(answer, Try)
        trials.append(made.round(number, answer.setting))
    classes = Federation.of(at.space).classes
    apart = [len({c.action(t.setting) for c in classes}) > 1 for t in trials]
    assert any(apart) == (metric == "round_s")


def test_a_limit_on_a_round_is_kept_once_it_is_known() -> None:
    limited = federated(objective=Objective("round_s"), constraints=("round_s <= 13",))
    free, _ = started(Bandit(), federated(objective=Objective("round_s")), 14)
    kept, _ = started(Bandit(), limited, 14)
    assert max(t.shown["round_s"].mean for t in free[4:]) > 13.0
    assert max(t.shown["round_s"].mean for t in kept[4:]) <= 13.0


class Stalled(MadeUp):
    """A training without progress."""

    def gain(self, setting: Setting) -> float:
        return 0.0


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize(("ran", "failed", "left"), [(165, 0, 160), (30, 30, 40)])
def test_half_of_a_training_is_half_of_all_its_rounds(
    numbered: bool, ran: int, failed: int, left: int
) -> None:
    knobs = tuple(replace(k, values=(k.default,)) for k in space().knobs)
    at = federated(space=Space(knobs), constraints=("accuracy >= 0.999",))
    made = Stalled()
    trials = [made.round(n, at.baseline) for n in range(1, failed + ran + 1)]
    for i in range(failed):
        trials[i] = replace(trials[i], state=TrialState.FAILED, measurement=None)
    now = situation(at, trials, made)
    state = {k: v for k, v in now.context.items() if numbered or k != "round"}
    answer = Bandit().suggest(replace(now, context={**state, "rounds_left": float(left)}))
    assert isinstance(answer, Try) and "cannot be reached" in answer.why


def chance(every: int) -> float:
    """Return the chance forecast after 40 of 100 rounds, of which some are evaluated."""
    knobs = tuple(replace(k, values=(k.default,)) for k in space().knobs)
    at = federated(space=Space(knobs), constraints=("accuracy >= 0.9",))
    made, trials = Course([1.0 - 0.9 * math.exp(-0.02 * n) for n in range(41)]), list[Trial]()
    seen = made.accuracy
    for number in range(1, 41):
        one = made.round(number, at.baseline)
        assert one.measurement is not None
        shown = dict(one.measurement.estimates)
        context = {**one.measurement.context, "accuracy": seen}
        if number % every:
            del shown["accuracy"]
        else:
            seen = made.accuracy
        trials.append(
            replace(one, measurement=replace(one.measurement, estimates=shown, context=context))
        )
    state = {**made.state(41), "accuracy": seen, "rounds_left": 60.0}
    answer = Bandit().suggest(Past(study=at, trials=tuple(trials), context=state))
    assert isinstance(answer, Try)
    return float(answer.why.partition("a chance of ")[2].partition(" ")[0])


def test_a_round_without_an_evaluation_removes_error_too() -> None:
    assert [chance(every) for every in (1, 5, 10)] == pytest.approx([0.0] * 3, abs=0.25)


@pytest.mark.parametrize("first", [39, 100])
def test_a_second_training_in_a_study_is_judged_by_its_own_accuracy(first: int) -> None:
    knobs = tuple(replace(k, values=(k.default,)) for k in space().knobs)
    at = federated(space=Space(knobs), constraints=("accuracy >= 0.9",))
    made = MadeUp(noise=0.02)
    trials = [made.round(n, at.baseline) for n in range(1, first + 1)]
    end, made.accuracy = made.accuracy, 0.1
    state = {**made.state(1), "rounds_left": 5.0}
    answer = Bandit().suggest(replace(situation(at, trials, made), context=state))
    assert end > 0.8 and isinstance(answer, Try)
    assert "a chance of 0.00 in 5 rounds" in answer.why


def test_clients_that_return_are_queried_again() -> None:
    made, at = MadeUp(clients=30), federated()
    trials = [made.round(1, at.baseline)]
    made.clients = 50
    federation = Federation.of(at.space)
    for number in range(2, 21):
        assert number > 9 or federation.available(rounds(past(at, trials), federation)) == 30.0
        trials.append(made.round(number, {**at.baseline, "participants": 10}))
    assert federation.available(rounds(past(at, trials), federation)) > 30.0


def test_no_more_clients_are_requested_than_answer() -> None:
    made, at = MadeUp(clients=30), federated(objective=Objective("round_s"))
    trials = [made.round(1, {**at.baseline, "participants": 50})]
    learnt = rounds(past(at, trials), Federation.of(at.space))
    assert Federation.of(at.space).available(learnt) == 30.0
    for number in range(2, 10):
        answer = Bandit().suggest(situation(at, trials, made))
        assert isinstance(answer, Try) and float(answer.setting["participants"]) <= 30.0
        trials.append(made.round(number, answer.setting))


def test_each_suggestion_has_its_prediction() -> None:
    trials, made = started(Bandit(), federated(), 5)
    answer = Bandit().suggest(situation(federated(), trials, made))
    assert isinstance(answer, Try)
    expected = answer.predicted["energy_j"].mean
    assert expected == pytest.approx(sum(made.joules(answer.setting).values()), rel=0.7)
    assert "80 % likely" in answer.why
    assert space().has(answer.setting)


def test_with_unlike_data_more_clients_and_less_local_work_are_expected_to_pay() -> None:
    def rates(labels: float) -> dict[str, float]:
        curve = ErrorCurve.of([], np.zeros((0, 3)), 0.9, labels)
        mean, error = curve.weights.mean[None, :], np.array([0.57])
        logs = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        usual, more, longer = curve.rounds_to(mean, error, 0.9, logs)[0]
        return {"k": usual / more, "e": usual / longer}

    unlike, alike = rates(0.2), rates(1.0)
    assert unlike["k"] > 1.1 * alike["k"] > 1.1
    assert unlike["e"] < 1.5 < 1.6 < alike["e"]


def test_the_reported_labels_of_clients_change_the_first_setting() -> None:
    def epochs(labels: float) -> float:
        at = federated(constraints=("accuracy >= 0.9",))
        total = 0.0
        for seed in range(12):
            reported = {f"data_classes.{c}": labels for c in CLASSES}
            now = Past(
                study=replace(at, seed=seed), trials=(), context={"accuracy": 0.1, **reported}
            )
            answer = Bandit().suggest(now)
            assert isinstance(answer, Try)
            total += math.log(float(answer.setting["local_epochs.mid"]))
        return total

    assert epochs(0.2) < epochs(1.0)
