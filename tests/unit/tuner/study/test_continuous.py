"""A study that decides continuously, round by round, and policies that request a load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders import completed, device, past, setting, study, trial, window
from tests.evidence import written
from tests.unit.tuner.study.worlds import World
from tuner import verify
from tuner.core import (
    Conflict,
    Done,
    InvalidInput,
    Mode,
    Outcome,
    Past,
    Phase,
    Plan,
    Row,
    Signal,
    Study,
    Suggestion,
    Terms,
    Trial,
    TrialState,
    Try,
)
from tuner.service.operations import Operations
from tuner.study.lifecycle import FAILED_IN_A_ROW, next_step
from tuner.study.loop import Loop
from tuner.study.moves import Assign, Move, Rest
from tuner.wire import Assignment, Change, HoldOrder, StepReport

ROUND = Terms(trials=4, window_s=10.0, max_window_s=30.0, mode=Mode.CONTINUOUS)
BASE = [trial(n, setting(), window(), phase=Phase.BASELINE) for n in (1, 2)]
REQUESTS = Signal("requests_in_system", askable=True)


@dataclass
class Rounds:
    """A policy that tries the clocks in turn for this many rounds, then holds 600 MHz."""

    rounds: int

    def suggest(self, past: Past) -> Suggestion:
        if past.spent >= self.rounds:
            return Done(Plan.single(setting(600)), "the federation is trained")
        return Try(setting((1000, 800, 600)[past.spent % 3]), f"round {past.spent + 1}")


def begun(policy: Rounds, terms: Terms = ROUND) -> World:
    world = World()
    world.loop = Loop(world.store, lambda _: policy, world.time.now, monotonic=world.time.monotonic)
    world.loop.register(device())
    world.store.studies.add(study(Phase.BASELINE, terms=terms), "test", "created")
    return world


def play(world: World, outcome: Callable[[Assignment], Outcome], most: int = 200) -> object:
    """Let an agent work until it gets an order other than a trial."""
    for _ in range(most):
        order = world.ask()
        if not isinstance(order, Assignment):
            return order
        world.report(order, outcome(order))
    raise AssertionError("it never ends")


def test_a_continuous_study_decides_for_a_hundred_rounds_and_confirms_nothing() -> None:
    world = begun(Rounds(100))
    order = play(world, lambda o: completed(float(o.setting["gpu.clock_mhz"]) / 100.0, 100.0))
    assert isinstance(order, HoldOrder)
    assert order.plan == Plan.single(setting(600))
    phases = [t.phase for t in world.store.trials.list("s1")]
    assert phases == [Phase.BASELINE] * 2 + [Phase.TUNING] * 100
    assert world.store.studies.latest("s1").why == "the federation is trained"


def test_another_load_neither_ends_a_continuous_study_nor_spoils_its_rounds() -> None:
    world = begun(Rounds(30))
    rates = iter(range(10, 10_000, 40))

    def busier(order: Assignment) -> Outcome:
        assert order.expected == {}
        measured = window(rate=float(next(rates)))
        return Outcome(state=TrialState.COMPLETED, measurement=measured)

    assert isinstance(play(world, busier), HoldOrder)
    assert {t.phase for t in world.store.trials.list("s1")[2:]} == {Phase.TUNING}


def test_contaminated_rounds_do_not_send_a_continuous_study_back() -> None:
    at = study(terms=ROUND, phase_since=3)
    busy = [trial(n, setting(600), window(rate=500.0), state=TrialState.CONTAMINATED)
            for n in (3, 4)]  # fmt: skip
    assert isinstance(step(at, [*BASE, *busy], Try(setting(800), "on")), Assign)


def test_rounds_that_fail_one_after_the_other_pause_a_continuous_study() -> None:
    world = begun(Rounds(100))
    count = 0

    def breaks(order: Assignment) -> Outcome:
        nonlocal count
        count += 1
        lost = Outcome(state=TrialState.FAILED, reason="lost")
        return completed(float(order.setting["gpu.clock_mhz"]) / 100.0) if count < 20 else lost

    play(world, breaks)
    assert world.store.studies.get("s1").phase is Phase.PAUSED
    assert count <= 19 + FAILED_IN_A_ROW + 1


class Says:
    """A policy with a fixed answer."""

    def __init__(self, answer: Suggestion) -> None:
        self._answer = answer

    def suggest(self, past: Past) -> Suggestion:
        return self._answer


def step(at: Study, trials: list[Trial], answer: Suggestion) -> Assign | Move | Rest:
    return next_step(past(at, trials), Says(answer))


BROKEN = trial(3, setting(400), window(4.0, 200.0))


def test_a_round_that_the_guard_refuses_is_run_at_the_baseline() -> None:
    assigned = step(study(terms=ROUND), [*BASE, BROKEN], Try(setting(400), "again"))
    assert isinstance(assigned, Assign)
    assert assigned.setting == setting()
    assert "gpu.clock_mhz=400 batch_size=1 was not tried" in assigned.why


def test_a_row_refused_by_the_guard_is_never_held() -> None:
    rows = (Row(5.0, setting(400)), Row(float("inf"), setting(600)))
    done = Done(Plan(rows, "requests_in_system"), "trained")
    move = step(study(terms=ROUND), [*BASE, BROKEN], done)
    assert isinstance(move, Move) and move.plan is not None
    assert (move.phase, [r.setting for r in move.plan.rows]) == (
        Phase.HOLDING,
        [setting(), setting(600)],
    )
    alone = step(study(terms=ROUND), [*BASE, BROKEN], Done(Plan.single(setting(400)), "trained"))
    assert isinstance(alone, Move)
    assert (alone.phase, alone.plan) == (Phase.HOLDING, Plan.single(setting()))


@pytest.mark.parametrize(
    ("signals", "can"),
    [
        ((), "nothing"),
        ((Signal("requests_in_system"),), "nothing"),
        ((Signal("requests_in_system"), Signal("arrival_rate_per_s", "1/s", True)),
         "arrival_rate_per_s"),
    ],
)  # fmt: skip
def test_an_unavailable_load_pauses_the_study_and_lists_the_available_ones(
    signals: tuple[Signal, ...], can: str
) -> None:
    suggestion = Try(setting(600), "busy", context={"requests_in_system": 8.0})
    move = step(study(signals=signals), BASE, suggestion)
    assert move == Move(
        Phase.PAUSED,
        "policy scripted requests requests_in_system = 8, but a trial of this workload can only set: "
        + can,
    )


def test_an_available_load_is_requested_and_stored_with_the_trial() -> None:
    at_load = {"requests_in_system": 8.0}

    class Busy(Rounds):
        def suggest(self, past: Past) -> Suggestion:
            return Try(setting(600), "busy", context=at_load)

    world = begun(Busy(1), Terms(trials=1, window_s=10.0, max_window_s=30.0))
    changed = study(signals=(REQUESTS,), terms=Terms(trials=4))
    world.store.studies.revise(changed.moved(Phase.BASELINE), "test", "signals", world.time.now())
    for _ in range(2):
        world.report(world.assigned(), completed())
    order = world.assigned()
    assert (order.setting, order.context, order.expected) == (setting(600), at_load, at_load)
    assert order.limits == (), "the limit is relative to a baseline nobody has seen at that load"
    assert world.store.trials.list("s1")[-1].context == at_load


def own_step(at: int = 800) -> StepReport:
    return StepReport(
        device="sim",
        study="s1",
        key="0123456789abcdef",
        setting=setting(at),
        outcome=completed(6.0),
    )


def test_a_step_that_the_agent_made_by_itself_is_one_trial_even_if_reported_twice() -> None:
    world = begun(Rounds(100))
    assert world.loop.trial_reports.own_step(own_step()).result == "closed"
    assert world.loop.trial_reports.own_step(own_step()).result == "duplicate"
    assert world.restarted().trial_reports.own_step(own_step()).result == "duplicate"
    (only,) = world.store.trials.list("s1")
    assert (only.state, only.setting) == (TrialState.COMPLETED, setting(800))
    assert only.phase is Phase.TUNING and "the tuner was unreachable" in only.why


def test_an_order_issued_meanwhile_ends_as_the_agent_continued_without_it() -> None:
    world = begun(Rounds(100))
    given = world.assigned()
    world.loop.trial_reports.own_step(own_step())
    first, second = world.store.trials.list("s1")
    assert first.number == given.trial and first.state is TrialState.ABORTED
    assert second.state is TrialState.COMPLETED


def test_a_tuner_that_died_while_it_took_a_step_takes_it_once() -> None:
    world = begun(Rounds(100))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.store.trials, "end", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.loop.trial_reports.own_step(own_step())
    assert world.restarted().trial_reports.own_step(own_step()).result == "closed"
    (only,) = world.store.trials.list("s1")
    assert only.state is TrialState.COMPLETED


@pytest.mark.parametrize("phase", [Phase.BASELINE, Phase.TUNING, Phase.PAUSED, Phase.STOPPED])
def test_the_evidence_with_a_step_that_arrived_in_any_phase_is_not_contradicted(
    phase: Phase, tmp_path: Path
) -> None:
    world = begun(Rounds(100))
    verbs, change = Operations(world.loop), Change(who="alice")
    for _ in range(0 if phase is Phase.BASELINE else 5):
        world.time.sleep(10.0)
        world.report(world.assigned(), completed(6.0))
    world.time.sleep(10.0)
    if phase in (Phase.PAUSED, Phase.STOPPED):
        (verbs.pause if phase is Phase.PAUSED else verbs.stop)("s1", change)
    world.time.sleep(10.0)
    assert world.store.studies.get("s1").phase is phase
    world.loop.trial_reports.own_step(own_step())
    found = verify.Archive(str(written(verbs, "s1", tmp_path / "study.zip")))
    assert found.wrong == []
    assert any(line.startswith("tuning: ") for line in found.beyond)


def test_a_search_refuses_steps_that_an_agent_chose() -> None:
    world = begun(Rounds(100), terms=Terms(trials=4))
    with pytest.raises(Conflict, match="not accept steps"):
        world.loop.trial_reports.own_step(own_step())
    assert world.store.trials.count("s1") == 0


def test_a_step_at_a_setting_outside_the_study_changes_nothing() -> None:
    world = begun(Rounds(100))
    with pytest.raises(InvalidInput):
        world.loop.trial_reports.own_step(own_step(at=801))
    assert world.store.trials.count("s1") == 0
