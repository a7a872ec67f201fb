"""Tables that are profiled with a single start of an engine."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from policies.speculation.policy import Speculation
from tests.builders import past, trial
from tests.unit.policies.speculation.machine import (
    BATCHES,
    DECODING,
    Decoder,
    Proposer,
    baseline,
    decoding_study,
    gpu,
    play,
    space,
)
from tuner.core import Cost, Plan, Study, Trial, TrialState, Try

RESTART = Cost(120.0, restart=True)
FOLLOWED = replace(DECODING, followed=True)


def restarting() -> Study:
    return decoding_study(space(cost=RESTART), signals=(FOLLOWED,))


def starts(trials: list[Trial]) -> int:
    """Return the number of starts of the engine: for settings, and for tables."""
    in_force = [t.plan or t.setting["length"] for t in trials]
    return sum(a != b for a, b in zip([None, *in_force], in_force, strict=False))


def next_try(at: Study, trials: list[Trial]) -> Try:
    answer = Speculation().suggest(past(at, trials))
    assert isinstance(answer, Try), answer
    return answer


def with_table(machine: Decoder, at: Study) -> tuple[list[Trial], Try]:
    """Play up to the first table."""
    trials = baseline(machine, at)
    while (answer := next_try(at, trials)).plan is None:
        batch = answer.context[DECODING.name]
        seen = machine.window(int(batch), answer.setting)
        trials.append(trial(len(trials) + 1, answer.setting, seen, context=answer.context))
    return trials, answer


@pytest.mark.parametrize("seed", range(4))
def test_one_start_measures_a_length_at_every_batch(seed: int) -> None:
    seen, done = play(gpu(random.Random(seed)), restarting())
    assert starts(seen) <= 0.5 * len(seen)
    tables = [t for t in seen if t.plan is not None]
    assert tables
    for one in tables:
        assert one.plan is not None
        row = one.plan.rows[one.plan.row(one.context)]
        assert (row.setting, row.at) == (one.setting, one.context[DECODING.name])
    machine = gpu(random.Random(seed))
    for batch in BATCHES:
        row = done.plan.rows[done.plan.row({DECODING.name: float(batch)})]
        reached = machine.throughput(batch, row.setting)
        assert reached >= 0.94 * machine.best(batch, space())
        assert reached >= 0.98 * machine.throughput(batch, {"length": 0})


def test_a_table_of_which_one_row_was_tried_is_measured_completely() -> None:
    machine, at = gpu(random.Random(1)), restarting()
    trials, answer = with_table(machine, at)
    table = answer.plan
    assert table is not None
    for _ in table.rows:
        assert answer.plan == table
        seen = machine.window(int(answer.context[DECODING.name]), answer.setting)
        ended = trial(len(trials) + 1, answer.setting, seen, context=answer.context)
        trials.append(replace(ended, plan=table))
        after = Speculation().suggest(past(at, trials))
        if not isinstance(after, Try):
            break
        answer = after
    assert {t.context[DECODING.name] for t in trials if t.plan} == {r.at for r in table.rows}


def test_after_two_tables_that_failed_each_length_has_its_own_start() -> None:
    machine, at = gpu(random.Random(1)), restarting()
    trials, answer = with_table(machine, at)
    tables: list[Plan] = []
    for _ in range(2):
        assert answer.plan is not None and answer.plan not in tables
        tables.append(answer.plan)
        failed = trial(
            len(trials) + 1,
            answer.setting,
            state=TrialState.FAILED,
            reason="it does not start",
            context=answer.context,
        )
        trials.append(replace(failed, plan=answer.plan))
        answer = next_try(at, trials)
    assert answer.plan is None


@pytest.mark.parametrize("seed", range(2))
def test_an_engine_with_its_own_table_has_one_draft_at_every_load(seed: int) -> None:
    machine = gpu(random.Random(seed))
    quick, keen = Proposer(0.75, 0.0, 0.02), Proposer(0.9, 0.0, 0.25)
    machine = replace(machine, drafts={"quick": quick, "keen": keen})
    two = space(("keen", "quick"), cost=RESTART)
    _, done = play(machine, decoding_study(two, signals=(FOLLOWED,)))
    drafting = {row.setting["draft"] for row in done.plan.rows if row.setting["length"]}
    assert drafting == {"quick"}
    assert {row.setting["draft"] for row in done.plan.rows} == {"quick"}
