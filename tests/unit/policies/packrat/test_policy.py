"""The policy on a machine with known latencies, step by step like the loop."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from agents.workloads.reference.knobs import knob_space
from policies.packrat import Packrat
from tests.builders import START, knob, past, study, trial, window_of
from tuner.core import (
    NO_ANSWER,
    Cost,
    Done,
    Estimate,
    InvalidInput,
    Knob,
    Measurement,
    Objective,
    Outcome,
    Part,
    Phase,
    Plan,
    Setting,
    Space,
    Terms,
    Trial,
    TrialState,
    Try,
    Wait,
    setting_key,
)
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move

THROUGHPUT = Objective("throughput_per_s", "maximize")
Seconds = Callable[[int, int], float]


def gpt2(threads: int, items: int) -> float:
    """Like the published measurements: fixed work that does not scale, and the cost of barriers."""
    return 1e-3 * (14 + 60 / threads + 0.2 * threads + items * (1.4 + 17 / threads))


def inception(threads: int, items: int) -> float:
    """Like the published measurements: at batch 1 half the threads are faster than all of them."""
    return 1e-3 * (10 + 30 / threads + 1.1 * threads + items * (1.0 + 62 / threads))


@dataclass
class Machine:
    """A server under a closed loop: full batches if enough requests are in flight."""

    cores: int
    seconds: Seconds
    callers: int = 16
    slower: float = 0.15
    noise: float = 0.0
    few: bool = False
    """Whether a window has too few requests to show a mean latency."""
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def batch_s(self, at: Setting) -> float:
        instances, threads = int(at["instances"]), int(at["threads"])
        items = min(int(at["batch_size"]), math.ceil(self.callers / instances))
        others = min(instances, self.callers) - 1
        return self.seconds(threads, items) * (1.0 + self.slower * others * threads / self.cores)

    def rate(self, at: Setting) -> float:
        full = min(int(at["instances"]) * int(at["batch_size"]), self.callers)
        return full / self.batch_s(at)

    def window(self, at: Setting, rate_per_s: float = 0.0) -> Measurement:
        rate = self.rate(at) * math.exp(self.rng.gauss(0.0, self.noise))
        mean_ms = 1000.0 * self.callers / rate
        doubt = max(self.noise, 0.001)
        shown = {
            "throughput_per_s": Estimate.of_mean(rate, doubt * rate, 20),
            "latency_mean_ms": Estimate.of_mean(mean_ms, doubt * mean_ms, 20),
            "latency_p50_ms": Estimate.of_mean(mean_ms, doubt * mean_ms, 20),
            "latency_p99_ms": Estimate.of_mean(1.3 * mean_ms, 1.3 * doubt * mean_ms, 500),
            "cpu_time_ms": Estimate.of_mean(
                1000 * int(at["instances"]) * int(at["threads"]) / rate, 0.1, 20
            ),
        }
        if self.few:
            del shown["latency_mean_ms"]
        return window_of(shown, {"arrival_rate_per_s": rate_per_s} if rate_per_s else {})


@dataclass
class Course:
    """One study on a machine, without agent or network, until something is held."""

    machine: Machine
    objective: Objective = THROUGHPUT
    constraints: tuple[str, ...] = ()
    trials_most: int = 40
    space: Space | None = None
    trials: list[Trial] = field(default_factory=list)

    def hold(self) -> Plan:
        at = study(
            Phase.BASELINE,
            constraints=self.constraints,
            space=self.space or knob_space(self.machine.cores),
            objective=self.objective,
            terms=Terms(trials=self.trials_most),
        )
        while at.phase is not Phase.HOLDING:
            step = next_step(past(at, self.trials), Packrat())
            if isinstance(step, Move):
                moved = at.moved(step.phase, step.plan)
                at = replace(moved, phase_since=len(self.trials) + 1)
                self.why = step.why
                if step.phase is Phase.CONFIRMING:
                    self.account = step.why
            else:
                assert isinstance(step, Assign), step
                number = len(self.trials) + 1
                begun = Trial(
                    number=number, setting=step.setting, phase=at.phase, started_at=START,
                    why=step.why,
                )  # fmt: skip
                window = self.machine.window(step.setting)
                self.trials.append(
                    begun.ended(Outcome(state=TrialState.COMPLETED, measurement=window), START)
                )
        assert at.plan is not None
        return at.plan

    def tried(self) -> list[Trial]:
        return [t for t in self.trials if t.phase is Phase.TUNING]


def true_best(machine: Machine, demand: int) -> float:
    """Return the seconds of the best equal instances for a demand, over the whole space."""
    return min(
        machine.batch_s(s)
        for s in knob_space(machine.cores).only
        if int(s["instances"]) * int(s["batch_size"]) == demand
    )


def takes(machine: Machine, at: Setting, demand: int) -> float:
    """Return the seconds that a setting takes for items that arrive together."""
    items = min(int(at["batch_size"]), demand)
    busy = min(int(at["instances"]), math.ceil(demand / items))
    rounds = math.ceil(demand / (busy * items))
    threads = int(at["threads"])
    slower = 1.0 + machine.slower * (busy - 1) * threads / machine.cores
    return rounds * machine.seconds(threads, items) * slower


@pytest.mark.parametrize("shape", [gpt2, inception])
@pytest.mark.parametrize("cores", [4, 16])
def test_the_held_plan_is_near_the_best_for_every_demand(shape: Seconds, cores: int) -> None:
    course = Course(Machine(cores, shape))
    plan = course.hold()
    assert plan.by == "requests_in_system"
    for demand in (1, 2, 4, 8, 16):
        held = plan.rows[plan.row({"requests_in_system": demand})].setting
        assert takes(course.machine, held, demand) <= 1.06 * true_best(course.machine, demand)


def test_a_row_is_decided_at_the_largest_of_its_demands() -> None:
    plan = Course(Machine(16, gpt2)).hold()
    lows = [0.0, *(row.below for row in plan.rows)]
    for low, row in zip(lows, plan.rows, strict=False):
        assert row.at == max(d for d in (1, 2, 4, 8, 16) if low <= d < row.below)


def test_points_that_cannot_matter_are_skipped_and_counted() -> None:
    course = Course(Machine(16, gpt2))
    course.hold()
    alone = {setting_key(t.setting) for t in course.tried() if t.setting["instances"] == 1}
    points = len(alone) + 1
    assert points < 20
    assert (
        f"measured {points} of 25 profile points ({25 - points} cannot change the plan)"
        in course.account
    )


def test_the_slowdown_side_by_side_is_learned_and_reported() -> None:
    course = Course(Machine(16, inception, slower=0.25))
    course.hold()
    assert any(int(t.setting["instances"]) > 1 for t in course.tried())
    assert "with all cores busy an instance is 2" in course.account


def test_idle_cores_are_left_where_they_only_wait_for_each_other() -> None:
    plan = Course(Machine(16, inception)).hold()
    assert plan.rows[plan.row({"requests_in_system": 1})].setting["threads"] == 8


def test_a_plan_has_few_settings_and_a_demand_stays_in_its_row() -> None:
    plan = Course(Machine(16, gpt2)).hold()
    assert 2 <= len({setting_key(r.setting) for r in plan.rows}) <= 5
    assert plan.rows[-1].below == math.inf
    for k, below in product(range(5), range(5)):
        reached = plan.row(
            {"requests_in_system": 2.0**k}, plan.row({"requests_in_system": 2.0**below})
        )
        assert reached == plan.row({"requests_in_system": 2.0**k}), (
            "hysteresis never spans two demands"
        )


def test_a_row_has_its_saving_against_its_neighbours() -> None:
    machine = Machine(16, gpt2)
    plan = Course(machine).hold()
    for k, row in enumerate(plan.rows):
        beside = [plan.rows[n].setting for n in (k - 1, k + 1) if 0 <= n < len(plan.rows)]
        saved = [
            1.0 - takes(machine, row.setting, d) / takes(machine, other, d)
            for d in (1, 2, 4, 8, 16)
            if plan.row({"requests_in_system": d}) == k
            for other in beside
        ]
        assert row.gain == pytest.approx(max(0.02, *saved), abs=0.1)
        assert row.gain < 1.0


def test_noise_does_not_lead_far_astray() -> None:
    machine = Machine(16, gpt2, noise=0.02)
    plan = Course(machine, trials_most=30).hold()
    for demand in (1, 2, 4, 8, 16):
        held = plan.rows[plan.row({"requests_in_system": demand})].setting
        assert takes(machine, held, demand) <= 1.15 * true_best(machine, demand)


def test_if_nothing_beats_the_baseline_it_is_held() -> None:
    course = Course(Machine(2, lambda threads, items: 0.1 * items / threads, slower=3.0))
    plan = course.hold()
    assert [r.setting for r in plan.rows] == [knob_space(2).default]
    assert course.why.startswith("no setting is proven better than the baseline")


def test_larger_batches_than_the_load_fills_are_left_out() -> None:
    course = Course(Machine(4, gpt2, callers=4))
    plan = course.hold()
    assert max(t.setting["instances"] * t.setting["batch_size"] for t in course.tried()) <= 4  # type: ignore[operator]
    assert "planned for 4 concurrent requests (4 in progress now)" in course.account
    assert len(plan.rows) <= 3


def test_a_slow_model_without_mean_latencies_is_planned_too() -> None:
    course = Course(Machine(4, gpt2, callers=4, few=True))
    plan = course.hold()
    assert "planned for 4 concurrent requests (4 in progress now)" in course.account
    assert plan.by == "requests_in_system"


def test_settings_beyond_a_limit_are_in_no_row() -> None:
    machine = Machine(4, gpt2)
    course = Course(machine, constraints=("latency_p99_ms <= 0.5x baseline",))
    base = machine.window(knob_space(4).default).estimates["latency_p99_ms"].mean
    for row in course.hold().rows:
        if row.setting != knob_space(4).default:
            assert machine.window(row.setting).estimates["latency_p99_ms"].mean <= 0.5 * base


def test_where_the_baseline_breaks_a_limit_no_row_is_at_it() -> None:
    machine = Machine(8, gpt2, slower=0.0)
    base = machine.window(knob_space(8).default).estimates["latency_p99_ms"].mean
    limit = f"latency_p99_ms <= {0.7 * base:.1f}"
    course = Course(machine, Objective("cpu_time_ms"), constraints=(limit,))
    held = course.hold()
    assert len(held.rows) == 1
    shown = machine.window(held.rows[0].setting).estimates
    assert shown["latency_p99_ms"].mean <= 0.7 * base
    assert "which the baseline breaks" in course.account


def test_another_objective_uses_its_own_measurements() -> None:
    machine = Machine(4, gpt2)
    plan = Course(machine, objective=Objective("cpu_time_ms")).hold()
    base = machine.window(knob_space(4).default).estimates["cpu_time_ms"].mean
    held = plan.rows[-1].setting
    assert machine.window(held).estimates["cpu_time_ms"].mean < 0.7 * base
    assert held["threads"] == 1


def test_it_keeps_within_its_trials_and_gives_the_reason_of_each() -> None:
    course = Course(Machine(16, gpt2), trials_most=9)
    course.hold()
    assert len(course.tried()) <= 9
    assert "were not measured" in course.account
    assert all(t.why for t in course.trials)
    profile = [t for t in course.tried() if t.why.startswith("profile: one instance alone")]
    checks = [t for t in course.tried() if t.why.startswith("check ")]
    assert profile
    assert checks
    assert len(profile) + len(checks) == len(course.tried())


def test_a_packing_that_should_gain_nothing_is_not_checked() -> None:
    ideal = Course(Machine(4, lambda threads, items: 0.01 * items / threads, slower=0.5))
    ideal.hold()
    checks = [t for t in ideal.tried() if t.why.startswith("check ")]
    assert len(checks) <= 3, "once it shows that instances hinder each other, no more are tried"


def test_a_checks_prediction_comes_true() -> None:
    machine = Machine(16, gpt2, slower=0.1)
    course = Course(machine)
    course.hold()
    errors = []
    for number, done in enumerate(course.trials):
        if done.phase is not Phase.TUNING or not done.why.startswith("check"):
            continue
        at = study(
            space=knob_space(16), constraints=(), objective=THROUGHPUT, terms=Terms(trials=40)
        )
        answer = Packrat().suggest(past(at, course.trials[:number]))
        assert isinstance(answer, Try)
        mean = answer.predicted["throughput_per_s"].mean
        errors.append(abs(mean / machine.rate(done.setting) - 1.0))
    assert errors
    assert sorted(errors)[len(errors) // 2] <= 0.1


def test_the_same_past_gives_the_same_suggestion_also_shuffled() -> None:
    course = Course(Machine(4, gpt2, noise=0.01))
    course.hold()
    at = study(space=knob_space(4), constraints=(), objective=THROUGHPUT, terms=Terms(trials=40))
    tuning = [t for t in course.trials if t.phase is not Phase.CONFIRMING]
    for count in range(2, len(tuning) + 1):
        shuffled = random.Random(count).sample(tuning[:count], count)
        assert Packrat().suggest(past(at, tuning[:count])) == Packrat().suggest(past(at, shuffled))


def test_a_point_that_fails_or_gives_nothing_is_not_requested_again() -> None:
    at = study(space=knob_space(4), constraints=(), objective=THROUGHPUT, terms=Terms(trials=40))
    machine = Machine(4, gpt2)
    trials = [
        trial(n, at.baseline, machine.window(at.baseline), phase=Phase.BASELINE) for n in (1, 2)
    ]
    asked: list[object] = []
    for number in range(3, 60):
        answer = Packrat().suggest(past(at, trials))
        if isinstance(answer, Done):
            break
        assert isinstance(answer, Try)
        asked.append(setting_key(answer.setting))
        if number % 3 == 0:
            trials.append(trial(number, answer.setting, state=TrialState.FAILED))
        elif number % 3 == 1:
            silent = replace(machine.window(answer.setting), estimates={})
            trials.append(trial(number, answer.setting, silent))
        else:
            trials.append(trial(number, answer.setting, state=TrialState.CONTAMINATED))
    assert isinstance(answer, Done)
    assert max(map(asked.count, asked)) <= 2, "only a contaminated window is measured once more"
    assert [r.setting for r in answer.plan.rows] == [at.baseline]


def test_a_batch_with_which_the_service_does_not_start_is_not_tried_with_other_knobs() -> None:
    knobs = [
        replace(k, cost=Cost(restart=True)) if k.name == "batch_size" else k
        for k in knob_space(4).knobs
    ]
    at = study(
        space=Space(tuple(knobs)), constraints=(), objective=THROUGHPUT, terms=Terms(trials=40)
    )
    machine = Machine(4, gpt2)
    bad = None
    trials = [
        trial(n, at.baseline, machine.window(at.baseline), phase=Phase.BASELINE) for n in (1, 2)
    ]
    failed = 0
    while not isinstance(answer := Packrat().suggest(past(at, trials)), Done):
        assert isinstance(answer, Try)
        number = len(trials) + 1
        batch = answer.setting["batch_size"]
        if bad is None and batch != at.baseline["batch_size"]:
            bad = batch
        if batch == bad:
            failed += 1
            why = f"the service {NO_ANSWER}: out of memory"
            trials.append(trial(number, answer.setting, state=TrialState.FAILED, reason=why))
        else:
            trials.append(trial(number, answer.setting, machine.window(answer.setting)))
    assert failed == 1


def test_packings_are_tried_though_one_thread_alone_was_always_disturbed() -> None:
    """Other programs compute on the cores that a single thread leaves idle; a packing uses all cores."""
    at = study(space=knob_space(2), constraints=(), objective=THROUGHPUT, terms=Terms(trials=12))
    machine = Machine(2, gpt2, callers=4)
    trials = [
        trial(n, at.baseline, machine.window(at.baseline), phase=Phase.BASELINE) for n in (1, 2)
    ]
    whys: list[str] = []
    while isinstance(answer := Packrat().suggest(past(at, trials)), Try):
        whys.append(answer.why)
        if int(answer.setting["instances"]) * int(answer.setting["threads"]) < 2:
            spoilt = trial(len(trials) + 1, answer.setting, state=TrialState.CONTAMINATED)
            trials.append(spoilt)
        else:
            window = machine.window(answer.setting)
            trials.append(trial(len(trials) + 1, answer.setting, window))
    assert isinstance(answer, Done)
    assert len(whys) <= 12
    assert any("a single instance gave no result" in why for why in whys)
    held = answer.plan.rows[answer.plan.row({"requests_in_system": 4})].setting
    assert takes(machine, held, 4) <= 1.06 * true_best(machine, 4)


def test_it_waits_for_the_running_trial() -> None:
    at = study(space=knob_space(4), constraints=(), objective=THROUGHPUT)
    machine = Machine(4, gpt2)
    done = trial(1, at.baseline, machine.window(at.baseline), phase=Phase.BASELINE)
    running = trial(2, at.baseline, state=TrialState.RUNNING)
    assert isinstance(Packrat().suggest(past(at, [])), Wait)
    assert isinstance(Packrat().suggest(past(at, [done, running])), Wait)


def test_under_an_offered_rate_it_compares_settings_as_they_are() -> None:
    at = study(space=knob_space(2), constraints=(), objective=Objective("cpu_time_ms"),
               terms=Terms(trials=5))  # fmt: skip
    machine = Machine(2, gpt2)
    trials = [trial(1, at.baseline, machine.window(at.baseline, 10.0), phase=Phase.BASELINE)]
    for _ in range(6):
        answer = Packrat().suggest(past(at, trials))
        if isinstance(answer, Done):
            break
        assert isinstance(answer, Try)
        assert "does not measure the time of a batch" in answer.why
        seen = machine.window(answer.setting, 10.0)
        trials.append(trial(len(trials) + 1, answer.setting, seen))
    assert isinstance(answer, Done)
    assert len(answer.plan.rows) == 1
    assert "closed-loop" in answer.why


def test_under_an_offered_rate_it_reports_that_nothing_keeps_the_limit() -> None:
    at = study(space=knob_space(2), constraints=("cpu_time_ms <= 0.001",),
               objective=Objective("cpu_time_ms"), terms=Terms(trials=1))  # fmt: skip
    seen = Machine(2, gpt2).window(at.baseline, 10.0)
    trials = [
        trial(1, at.baseline, seen, phase=Phase.BASELINE),
        trial(2, at.baseline, seen),
    ]
    answer = Packrat().suggest(past(at, trials))
    assert isinstance(answer, Done)
    assert answer.plan.rows[0].setting == at.baseline
    assert "no setting is proven feasible" in answer.why


@pytest.mark.parametrize(
    ("knob", "says"),
    [
        (knob("gpu.clock_mhz", (400, 800), 800), "none of them"),
        (knob("threads", ("few", "many"), "few", Part.WORKLOAD), "needs integer values"),
        (knob("batch_size", (0, 1), 1, Part.WORKLOAD), "needs integer values"),
    ],
)
def test_a_space_without_counts_is_refused(knob: Knob, says: str) -> None:
    at = study(space=Space((knob,)), constraints=())
    with pytest.raises(InvalidInput, match=says):
        Packrat().suggest(past(at, [trial(1, at.baseline, phase=Phase.BASELINE)]))


def test_other_knobs_stay_at_their_default() -> None:
    base = knob_space(4)
    clock = knob("cpu.clock_mhz", (1000, 2000), 2000)
    course = Course(Machine(4, gpt2), space=Space((clock, *base.knobs)))
    course.hold()
    assert {t.setting["cpu.clock_mhz"] for t in course.trials} == {2000}
    assert all(t.setting["instances"] * t.setting["threads"] <= 4 for t in course.trials)  # type: ignore[operator]
