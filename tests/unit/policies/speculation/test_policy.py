"""The policy on engines with known costs, window by window."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from policies.speculation.batches import FURTHER
from policies.speculation.policy import CHECKED, PROVING, Speculation
from tests.builders import past, trial
from tests.errors import raised
from tests.unit.policies.speculation.machine import (
    BATCHES,
    DECODING,
    LENGTHS,
    Decoder,
    Proposer,
    baseline,
    cpu,
    decoding_study,
    gpu,
    play,
    space,
)
from tuner.core import (
    NO_ANSWER,
    Cost,
    Done,
    Estimate,
    InvalidInput,
    Knob,
    Objective,
    Part,
    Past,
    Role,
    Space,
    Trial,
    TrialState,
    Try,
    Wait,
)

SEEDS = range(10)


def grid_points(trials: list[Trial]) -> set[tuple[float, object]]:
    return {(t.ran_at[DECODING.name], t.setting["length"]) for t in trials}


def lengths(done: Done) -> dict[int, int]:
    plan = done.plan
    return {
        b: int(plan.rows[plan.row({DECODING.name: float(b)})].setting["length"]) for b in BATCHES
    }


def memory_bound(noise: float = 0.02) -> Decoder:
    """Return a GPU: six tokens pay at one request, none or two at 32 requests."""
    return Decoder(
        lambda b, s: 1.0 + 0.05 * max(0.0, b * (s + 1) - 24) + 0.002 * b * (s + 1),
        lambda b: 1.0,
        {"small": Proposer(0.85, 0.02, 0.02)},
        noise,
    )


def compute_bound(noise: float = 0.02) -> Decoder:
    """Return two cores: every token of a pass takes its time from four requests on."""
    return Decoder(
        lambda b, s: max(1.0, 0.35 * b * (s + 1)),
        lambda b: max(1.0, 0.35 * b),
        {"small": Proposer(0.6, 0.05, 0.1)},
        noise,
    )


def test_a_gpu_drafts_much_alone_and_little_at_a_full_batch() -> None:
    _, done = play(memory_bound(), decoding_study(space()))
    longest = lengths(done)
    assert longest[1] >= 5
    assert longest[32] <= 2
    assert sorted(longest.values(), reverse=True) == list(longest.values())


def test_a_machine_bound_by_computing_does_not_draft_from_some_batch_on() -> None:
    _, done = play(compute_bound(), decoding_study(space()))
    longest = lengths(done)
    assert all(longest[b] == 0 for b in BATCHES if b >= 4)


@pytest.mark.parametrize("kind", [gpu, cpu])
@pytest.mark.parametrize("detailed", [True, False])
def test_a_quarter_of_the_grid_is_enough_for_a_good_table(
    kind: Callable[[random.Random], Decoder], *, detailed: bool
) -> None:
    losses = []
    for seed in SEEDS:
        machine = kind(random.Random(seed))
        machine.detailed = detailed
        trials, done = play(machine, decoding_study(space()))
        points = grid_points(trials)
        assert (
            len(points) <= max(13, len({batch for batch, _ in points}) * len(LENGTHS) / 4) + PROVING
        )
        plan = done.plan
        for batch in BATCHES:
            row = plan.rows[plan.row({DECODING.name: float(batch)})]
            loss = 1.0 - machine.throughput(batch, row.setting) / machine.best(batch, space())
            losses.append(loss)
    # With a standard error of 3 % per window, the second best cannot be distinguished from the best.
    close = sum(loss <= max(0.02, 2.0 * 0.03) for loss in losses)
    assert sorted(losses)[len(losses) // 2] < 0.005
    assert close >= 0.97 * len(losses)


@pytest.mark.parametrize("knee", [64, 200, 1024])
@pytest.mark.parametrize("trials", [14, 40])
def test_no_length_is_used_at_more_requests_than_it_was_measured_at(knee: int, trials: int) -> None:
    """A length that pays at 32 requests would cost a third at 256: a pass is full at `knee` tokens."""
    machine = Decoder(
        lambda b, s: 1.0 + 0.002 * b * (s + 1) + max(0.0, b * (s + 1) - knee) / knee,
        lambda b: 1.0 + b / knee,
        {"small": Proposer(0.8, 0.02, 0.03)},
    )
    seen, done = play(machine, decoding_study(space(), trials=trials))
    for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        row = done.plan.rows[done.plan.row({DECODING.name: float(batch)})]
        plain = machine.throughput(batch, {"length": 0})
        assert machine.throughput(batch, row.setting) >= 0.98 * plain
    drafted = max(row.at or 0.0 for row in done.plan.rows if row.setting["length"])
    assert drafted <= max(batch for batch, _ in grid_points(seen))


def test_beyond_the_highest_batch_decoding_is_plain() -> None:
    at, machine = decoding_study(space()), memory_bound()
    machine = replace(machine, verify_s=lambda b, s: 1.0)  # drafting always pays
    trials, done = play(machine, at)
    assert max(batch for batch, _ in grid_points(trials)) == 256.0
    assert done.plan.rows[-1].setting["length"] == 0, "nobody knows whether 512 decode together"


def test_plain_decoding_is_measured_at_every_batch_and_first() -> None:
    trials, done = play(memory_bound(), decoding_study(space()))
    plain = [t.ran_at[DECODING.name] for t in trials if t.setting["length"] == 0]
    assert set(plain) >= set(BATCHES)
    assert "13 of 54 points of the grid (6 of them without drafting)" in done.why


@pytest.mark.parametrize("seed", [5000, 5003])
def test_a_batch_that_fills_a_pass_exactly_does_not_draft(seed: int) -> None:
    """24 tokens fill one tile: with 24 requests each further token per request takes another tile."""
    rng = random.Random(seed)
    slope = rng.uniform(0.36, 0.64)
    machine = Decoder(
        lambda b, s: 1.12 + slope * (math.ceil(b * (s + 1) / 24) - 1),
        lambda b: 1.0 + 0.03 * math.ceil(b / 24),
        {"small": Proposer(rng.uniform(0.5, 0.7), 0.01, 0.1)},
        rng=rng,
    )
    trials, done = play(machine, decoding_study(space()))
    row = done.plan.rows[done.plan.row({DECODING.name: 24.0})]
    plain = machine.throughput(24, {"length": 0})
    assert machine.throughput(24, row.setting) >= 0.98 * plain
    between = {t.ran_at[DECODING.name] for t in trials} - {float(b) for b in (*BATCHES, *FURTHER)}
    assert len(between) <= CHECKED / 2


def test_rows_cover_the_batches_above_the_one_before() -> None:
    _, done = play(memory_bound(), decoding_study(space()))
    assert done.plan.by == DECODING.name
    for low, row in zip([0.0, *(r.below for r in done.plan.rows)], done.plan.rows, strict=False):
        assert row.at in (*BATCHES, 3, 6, 12, 24), "also between two that are profiled"
        assert low < row.at < row.below
        assert row.below in (math.inf, row.at + 0.5)
        assert 0.0 < row.gain <= 1.0


def test_a_study_with_fewer_trials_profiles_fewer_batches() -> None:
    trials, done = play(memory_bound(), decoding_study(space(), trials=7))
    batches = {t.context[DECODING.name] for t in trials if t.context}
    assert {1.0, 32.0} <= batches
    assert len(batches) < 6
    assert len(trials) <= 2 + 7
    assert lengths(done)[1] > lengths(done)[32]


def test_a_load_that_the_engine_does_not_allow_is_left_out() -> None:
    at, machine = decoding_study(space()), memory_bound()
    trials = baseline(machine, at)
    for _ in range(40):
        answer = Speculation().suggest(past(at, trials))
        if isinstance(answer, Done):
            break
        assert isinstance(answer, Try)
        requested = int(answer.context[DECODING.name])
        seen = machine.window(min(requested, 8), answer.setting)
        decoding = {DECODING.name: Estimate.of_mean(min(requested, 8), 0.1, 99)}
        shown = replace(
            seen,
            estimates={**seen.estimates, **decoding},
            context={DECODING.name: float(requested)},
        )
        trials.append(trial(len(trials) + 1, answer.setting, shown, context=answer.context))
    assert isinstance(answer, Done)
    assert max(t.context.get(DECODING.name, 0.0) for t in trials) == 16.0
    assert max(row.at or 0.0 for row in answer.plan.rows) <= 8.0


def test_without_a_load_to_request_one_length_is_found_for_the_present_load() -> None:
    machine, at = memory_bound(), decoding_study(space(), signals=())
    trials, done = play(machine, at, batch=1)
    assert len(done.plan.rows) == 1
    assert len({t.setting["length"] for t in trials}) <= 5
    held = machine.throughput(1, done.plan.rows[0].setting)
    assert held >= 0.97 * machine.best(1, space())


def test_the_draft_is_chosen_with_its_length() -> None:
    drafts = {
        "deep": Proposer(0.92, 0.01, 0.4),
        "shallow": Proposer(0.8, 0.02, 0.03),
        "ngram": Proposer(0.35, 0.05, 0.001),
    }
    machine = replace(memory_bound(), drafts=drafts)
    within = space(tuple(drafts))
    _, done = play(machine, decoding_study(within))
    for batch in BATCHES:
        row = done.plan.rows[done.plan.row({DECODING.name: float(batch)})]
        reached = machine.throughput(batch, row.setting)
        assert reached >= 0.95 * machine.best(batch, within)


def test_a_length_that_breaks_a_limit_is_in_no_row() -> None:
    at = decoding_study(space(), constraints=("inter_token_p99_ms <= 1200",))
    machine = memory_bound()
    trials = slow_steps(machine, baseline(machine, at))
    for _ in range(40):
        answer = Speculation().suggest(past(at, trials))
        if isinstance(answer, Done):
            break
        assert isinstance(answer, Try)
        seen = machine.window(int(answer.context[DECODING.name]), answer.setting)
        slow = trial(len(trials) + 1, answer.setting, seen, context=answer.context)
        trials += slow_steps(machine, [slow])
    assert isinstance(answer, Done)
    broken = {
        (t.ran_at[DECODING.name], t.setting["length"])
        for t in trials
        if t.shown["inter_token_p99_ms"].low > 1200
    }
    assert broken
    for batch, length in lengths(answer).items():
        assert (float(batch), length) not in broken


def slow_steps(machine: Decoder, trials: list[Trial]) -> list[Trial]:
    """Return trials whose windows also show the time of a step."""
    slowed = []
    for one in trials:
        assert one.measurement is not None
        batch, length = int(one.ran_at[DECODING.name]), int(one.setting["length"])
        step_ms = 1000 * machine.verify_s(batch, length)
        tail = {"inter_token_p99_ms": Estimate.of_mean(step_ms, 0.001 * step_ms, 500)}
        shown = {**one.measurement.estimates, **tail}
        slowed.append(replace(one, measurement=replace(one.measurement, estimates=shown)))
    return slowed


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_draft_that_is_always_or_never_right_works(rate: float) -> None:
    machine = replace(memory_bound(), drafts={"small": Proposer(rate, 0.0, 0.02)})
    _, done = play(machine, decoding_study(space()))
    assert lengths(done)[1] == (8 if rate else 0)


def test_windows_with_counters_that_were_reset_are_not_believed() -> None:
    at, machine = decoding_study(space()), memory_bound()
    trials, _ = play(machine, at)
    profiled = [t for t in trials if t.ran_at[DECODING.name] in BATCHES]
    last = next(t for t in reversed(profiled) if t.setting["length"])
    assert last.measurement is not None
    reset = {**last.measurement.estimates, "accepted_at_1": Estimate.of_mean(7.0, 0.1, 9)}
    wrong = replace(last, measurement=replace(last.measurement, estimates=reset))
    answer = Speculation().suggest(past(at, [wrong if t is last else t for t in trials]))
    assert isinstance(answer, Done | Try)
    assert "12 of 54 points" in answer.why


def test_a_batch_whose_plain_windows_fail_is_not_waited_for() -> None:
    at, machine = decoding_study(space()), memory_bound()
    trials = baseline(machine, at)
    for _ in range(60):
        answer = Speculation().suggest(past(at, trials))
        if isinstance(answer, Done):
            break
        assert isinstance(answer, Try)
        batch = int(answer.context[DECODING.name])
        number = len(trials) + 1
        if batch == 16:
            broken = trial(number, answer.setting, state=TrialState.FAILED, context=answer.context)
            trials.append(broken)
            continue
        seen = machine.window(batch, answer.setting)
        trials.append(trial(number, answer.setting, seen, context=answer.context))
    assert isinstance(answer, Done)
    assert lengths(answer)[1] >= 5


def test_a_draft_with_which_the_engine_does_not_start_is_not_tried_at_other_lengths() -> None:
    large = Knob(
        "draft", ("small", "large"), "small", Part.WORKLOAD, Cost(restart=True), Role.DRAFT
    )
    at, machine = decoding_study(Space((*space().knobs, large))), memory_bound()
    trials, failed = baseline(machine, at), 0
    while not isinstance(answer := Speculation().suggest(past(at, trials)), Done):
        assert isinstance(answer, Try)
        number = len(trials) + 1
        if answer.setting["draft"] == "large":
            failed += 1
            why = f"llama-server {NO_ANSWER}: it ended with 1"
            trials.append(trial(number, answer.setting, state=TrialState.FAILED, reason=why))
            continue
        seen = machine.window(int(answer.context[DECODING.name]), answer.setting)
        trials.append(trial(number, answer.setting, seen, context=answer.context))
    assert failed == 1
    assert lengths(answer)[1] >= 5


def test_the_baseline_comes_first_and_a_running_window_is_waited_for() -> None:
    at, machine = decoding_study(space()), memory_bound()
    assert isinstance(Speculation().suggest(past(at, [])), Wait)
    running = trial(3, state=TrialState.RUNNING, at={"length": 3})
    waiting = past(at, [*baseline(machine, at), running])
    assert isinstance(Speculation().suggest(waiting), Wait)


@pytest.mark.parametrize("values", [(0.5, 1.5), ("off", "on"), (-1, 0)])
def test_a_length_that_is_not_a_number_of_tokens_is_refused(
    values: tuple[float | str | int, ...],
) -> None:
    knob = Knob("length", values, values[0], Part.WORKLOAD, role=Role.SPECULATION_LENGTH)
    at = decoding_study(Space((knob,)))
    with pytest.raises(InvalidInput, match="integers >= 0"):
        Speculation().suggest(Past(study=at, trials=()))


def test_a_workload_without_a_length_is_refused() -> None:
    at = decoding_study(Space((Knob("batch_size", (1, 2), 1, Part.WORKLOAD),)))
    with raised(InvalidInput, "speculatively"):  # when the study is created, not after its baseline
        Speculation().refuse(at)


def test_joules_per_token_are_tuned_like_time() -> None:
    at = decoding_study(space())
    trials, done = play(memory_bound(), at)
    energy = [in_joules(t) for t in trials]
    answer = Speculation().suggest(past(replace(at, objective=Objective("energy_j")), energy))
    assert isinstance(answer, Done)
    assert lengths(answer) == lengths(done)


def in_joules(one: Trial) -> Trial:
    """Return a trial of a machine that always draws 100 W."""
    assert one.measurement is not None
    rate = one.measurement.estimates["throughput_per_s"]
    joules = 100.0 / rate.mean
    shown = {
        **one.measurement.estimates,
        "energy_j": Estimate.of_mean(joules, joules * rate.stderr / rate.mean, rate.n),
    }
    return replace(one, measurement=replace(one.measurement, estimates=shown))


def test_a_plan_without_trials_left_is_made_of_the_batches_that_were_measured() -> None:
    at, machine = decoding_study(space(), trials=4), memory_bound()
    trials = baseline(machine, at)
    for batch in (3, 96):
        for length in (0, 5):
            measured = machine.window(batch, {"length": length})
            context = {DECODING.name: float(batch)}
            trials.append(trial(len(trials) + 1, {"length": length}, measured, context=context))
    answer = Speculation().suggest(past(at, trials))
    assert isinstance(answer, Done)
    assert {row.at for row in answer.plan.rows} == {3.0, 96.0}
    alone, together = (int(row.setting["length"]) for row in answer.plan.rows)
    assert alone >= 5 and together == 0
