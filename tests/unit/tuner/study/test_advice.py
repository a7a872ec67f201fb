"""Studies that only advise: their plan waits for approval."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import baseline, completed, device, past, setting, study
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import (
    Outcome,
    Past,
    Phase,
    Plan,
    Row,
    Safety,
    Setting,
    Study,
    Terms,
    Trial,
)
from tuner.study.lifecycle import advised
from tuner.study.moves import Assign, Move, Rest, Step, hold_baseline
from tuner.wire import Assignment, HoldOrder, Release

ADVISE = Terms(trials=4, window_s=10.0, max_window_s=30.0, safety=Safety.ADVISE)
WINNER = Plan.single(setting(600))


def advising(phase: Phase = Phase.TUNING, **changes: Any) -> Study:  # noqa: ANN401
    return study(phase, terms=ADVISE, **changes)


def known(at: Study) -> Past:
    return past(at, baseline(at))


def test_a_proposal_has_its_saving_and_its_limits() -> None:
    at = advising(Phase.CONFIRMING, plan=WINNER)
    step = advised(known(at), Move(Phase.HOLDING, "confirmed: energy_j 40 ± 1 % better", WINNER))
    assert isinstance(step, Move)
    assert (step.phase, step.plan) == (Phase.PROPOSED, WINNER)
    assert step.why == (
        "gpu.clock_mhz=600 batch_size=1 awaits approval: "
        "confirmed: energy_j 40 ± 1 % better; limits: latency_p99_ms <= 120"
    )


def test_the_baseline_is_proposed_with_its_own_reason() -> None:
    at = advising()
    held = Move(Phase.HOLDING, "no setting was confirmed", Plan.single(at.baseline))
    assert advised(known(at), held) == replace(held, phase=Phase.PROPOSED)


@pytest.mark.parametrize(
    "step",
    [
        Assign(setting(600), "step 1"),
        Rest("later"),
        Move(Phase.CONFIRMING, "low enough", WINNER),
        Move(Phase.PAUSED, "the policy failed"),
    ],
)
def test_every_other_step_stays_unchanged(step: Step) -> None:
    assert advised(known(advising()), step) == step


@pytest.mark.parametrize("safety", [s for s in Safety if s is not Safety.ADVISE])
def test_a_study_of_any_other_safety_holds_at_once(safety: Safety) -> None:
    at = study(terms=replace(ADVISE, safety=safety))
    held = Move(Phase.HOLDING, "confirmed", WINNER)
    assert advised(known(at), held) == held


def test_a_baseline_that_breaks_a_limit_is_reported_first() -> None:
    at = advising(constraints=("latency_p99_ms <= 50",))
    step = advised(known(at), hold_baseline(at, known(at).evidence, "nothing keeps it"))
    assert isinstance(step, Move)
    assert step.phase is Phase.PROPOSED
    assert step.why.startswith("LIMIT NOT MET: proposing the baseline (latency_p99_ms 100, ")


def test_a_plan_is_listed_row_by_row() -> None:
    plan = Plan((Row(3.0, setting(600)), Row(math.inf, setting())), by="requests_in_system")
    assert plan.in_words == (
        "requests_in_system below 3: gpu.clock_mhz=600 batch_size=1; "
        "else gpu.clock_mhz=1000 batch_size=1"
    )


def proposed(world: World, *names: str) -> list[Trial]:
    """Play the devices of an advising study until it proposes; return its trials."""
    names = names or ("sim",)
    world.start(*names, terms=ADVISE)
    for _ in range(40):
        orders = world.step(truth, *names).values()
        assert not any(isinstance(order, HoldOrder) for order in orders)
        if all(isinstance(order, Release) for order in orders):
            return list(world.store.trials.list("s1"))
    raise AssertionError("nothing is proposed")


def kinds(world: World) -> list[str]:
    return [event.kind for event in world.store.events.list("s1")]


def test_it_tunes_and_confirms_as_any_study_and_then_waits_with_its_device_released(
    world: World,
) -> None:
    trials = proposed(world)
    phases = [t.phase for t in trials]
    assert phases == [Phase.BASELINE] * 2 + [Phase.TUNING] * 2 + [Phase.CONFIRMING] * 4
    stored = world.store.studies.get("s1")
    assert (stored.phase, stored.proposed, stored.held) == (Phase.PROPOSED, WINNER, None)
    answer = world.ask(holding="s1")
    assert isinstance(answer, Release)
    assert "awaits approval" in answer.why
    event = world.store.events.list("s1")[-1]
    assert event.kind == "proposed"
    assert "40.0 ± 0.6 % better" in event.text and "latency_p99_ms <= 120" in event.text


def test_a_proposal_waits_for_every_device_and_for_approval_without_a_limit(world: World) -> None:
    trials = proposed(world, "a", "b")
    world.wait(7200.0)
    world.loop = world.restarted()
    for name in ("a", "b"):
        assert isinstance(world.ask(name, agent="host/2"), Release)
    assert list(world.store.trials.list("s1")) == trials, "and nothing more is tried"


def test_after_a_crash_before_it_was_stored_the_same_is_proposed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start(terms=ADVISE)
    revise = world.store.studies.revise

    def dies(revised: Study, *rest: object) -> Study:
        if revised.phase is Phase.PROPOSED:
            raise KeyboardInterrupt
        return revise(revised, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(world.store.studies, "revise", dies)
        while True:
            order = world.assigned()
            world.report(order, truth(order.setting))
    world.loop = world.restarted()
    assert isinstance(world.ask(), Release)
    assert world.store.studies.get("s1").proposed == WINNER
    assert kinds(world).count("proposed") == 1


@pytest.mark.parametrize("paused", [False, True])
def test_a_changed_device_withdraws_its_proposal(world: World, paused: bool) -> None:
    proposed(world)
    if paused:
        held = world.store.studies.get("s1").moved(Phase.PAUSED)
        world.store.studies.revise(held, "ann", "lunch", world.time.now())
    world.loop.register(device(driver="2"))
    stored = world.store.studies.get("s1")
    assert stored.proposed is None
    assert (stored.phase, stored.paused_from) == (
        (Phase.PAUSED, Phase.BASELINE) if paused else (Phase.BASELINE, None)
    )
    event = world.store.events.list("s1")[-1]
    assert event.kind == "withdrawn"
    assert event.text.startswith("gpu.clock_mhz=600 batch_size=1 is no longer proposed: driver 2")


def test_without_a_proposal_nothing_is_withdrawn(world: World) -> None:
    world.start(terms=ADVISE)
    world.report(world.assigned(), completed())
    world.loop.register(device(driver="2"))
    assert "withdrawn" not in kinds(world)


def test_if_nothing_wins_the_device_is_not_even_set_to_its_baseline(world: World) -> None:
    world.start(terms=ADVISE)

    def flat(_: Setting) -> Outcome:
        return completed()

    while isinstance(order := world.ask(), Assignment):
        world.report(order, flat(order.setting))
    assert isinstance(order, Release)
    assert world.store.studies.get("s1").proposed == Plan.single(setting())
