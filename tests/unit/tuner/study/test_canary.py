"""A plan on a canary: only it holds first; all devices hold once its windows agree with confirming."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.builders import (
    START,
    completed,
    device,
    past,
    setting,
    study,
    trial,
    window,
)
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import (
    Context,
    Estimate,
    Measurement,
    Observation,
    Outcome,
    Phase,
    Plan,
    Report,
    Row,
    Safety,
    Setting,
    Study,
    Terms,
    Trial,
    TrialState,
)
from tuner.service.operations import Operations
from tuner.study import canary
from tuner.study.canary import CanaryResult, judged, own_trials, staged
from tuner.study.moves import Assign, Move
from tuner.wire import Change, Decision, HoldOrder, HoldReport, Release

TERMS = Terms(trials=4, window_s=10.0, max_window_s=30.0, canary="a", canary_windows=3)
BOTH = ("a", "b")
WINNER = Plan.single(setting(600))
SAVES = window(6.0, 110.0)
"""A device's window at the winner, in the canary phase as while confirming."""


def begun(world: World, surface: Callable[[Setting], Outcome] = truth, **changes: Any) -> HoldOrder:  # noqa: ANN401
    """Run a study of two devices until the canary gets the order to hold; the other one never gets it."""
    world.start(*BOTH, **{"terms": TERMS, **changes})
    for _ in range(40):
        orders = world.step(surface, *BOTH)
        assert not isinstance(orders["b"], HoldOrder)
        if isinstance(order := orders["a"], HoldOrder):
            return order
    raise AssertionError("the canary is to hold nothing")


def show(
    world: World, order: HoldOrder, seen: Measurement = SAVES, count: int = 1, name: str = "a"
) -> Phase:
    """Report windows of a hold, each a minute after the one before; return the study's phase."""
    for _ in range(count):
        world.time.sleep(60.0)
        report = HoldReport.of(
            order,
            device=name,
            setting=setting(600),
            measurement=replace(seen, started_at=world.time.now()),
        )
        assert world.loop.hold_reports.observe(report).result == "kept"
    return world.store.studies.get("s1").phase


def said(world: World) -> str:
    return world.store.events.list("s1")[-1].text


def test_a_plan_is_held_on_the_canary_and_on_the_others_once_that_confirms_it(world: World) -> None:
    order = begun(world)
    assert (order.plan, world.store.studies.get("s1").phase) == (WINNER, Phase.CANARY)
    waits = world.ask("b", holding="s1")
    assert isinstance(waits, Release), "what it held before is let go"
    assert waits.why == "its plan is tried on the canary a first"
    assert show(world, order, count=2) is Phase.CANARY
    assert isinstance(world.ask("b"), Release)
    assert show(world, order) is Phase.HOLDING
    assert said(world) == (
        "confirmed: energy_j 40.0 ± 0.5 % better than the baseline in 3 windows on a"
    )
    for name in BOTH:
        held = world.ask(name)
        assert isinstance(held, HoldOrder)
        assert (held.plan, held.revision) == (WINNER, order.revision + 1)


def test_windows_of_the_canary_count_over_a_restart_of_the_tuner(world: World) -> None:
    order = begun(world)
    show(world, order, count=2)
    world.loop = world.restarted()
    assert world.ask("a") == order
    assert show(world, order) is Phase.HOLDING


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (window(9.9, 110.0), "energy_j 1.0 ± 0.9 % better"),
        (window(12.0, 110.0), "energy_j 20.0 ± 1.1 % worse"),
        (window(6.0, 130.0), "latency_p99_ms <= 120 is not proven to hold in 3 windows on a"),
    ],
)
def test_windows_that_contradict_the_confirmation_start_the_study_over(
    world: World, seen: Measurement, why: str
) -> None:
    order = begun(world)
    assert show(world, order, seen, 3) is Phase.BASELINE
    assert said(world).startswith("the canary contradicts its plan: ")
    assert why in said(world)
    stored = world.store.studies.get("s1")
    assert (stored.plan, stored.since_trial) == (None, 9)
    assert not isinstance(world.ask("b"), HoldOrder)


def test_a_saving_that_is_merely_less_certain_is_not_contradicted(world: World) -> None:
    order = begun(world)
    doubtful = window(9.0, 110.0, extra={"energy_j": Estimate.of_mean(9.0, 1.8, 10)})
    assert show(world, order, doubtful, 3) is Phase.HOLDING


def test_a_limit_that_is_not_proven_gets_more_windows_but_not_for_ever(world: World) -> None:
    order = begun(world)
    unsure = window(6.0, 118.0, relative=0.03)
    assert show(world, order, unsure, 3 * canary.MOST_ROUNDS - 1) is Phase.CANARY
    assert show(world, order, unsure) is Phase.BASELINE
    assert "latency_p99_ms <= 120 is not proven to hold in 9 windows on a" in said(world)


def test_a_limit_that_further_windows_prove_is_kept(world: World) -> None:
    order = begun(world)
    assert show(world, order, window(6.0, 118.0, relative=0.03), 4) is Phase.CANARY
    assert show(world, order, count=2) is Phase.HOLDING


@pytest.mark.parametrize("which", ["load", "device", "revision"])
def test_only_windows_of_the_canary_in_its_hold_and_under_the_same_load_count(
    world: World, which: str
) -> None:
    order = begun(world)
    other = {
        "load": (order, window(6.0, 110.0, rate=5.0), "a"),
        "device": (order, SAVES, "b"),
        "revision": (order.model_copy(update={"revision": order.revision - 1}), SAVES, "a"),
    }
    of, seen, name = other[which]
    assert show(world, of, seen, 4, name) is Phase.CANARY
    assert isinstance(world.ask("b"), Release)


def test_the_canary_is_compared_with_itself(world: World) -> None:
    world.start(*BOTH, terms=TERMS)
    while not isinstance(order := world.ask("a"), HoldOrder):
        for name, factor in (("a", 0.5), ("b", 1.5)):
            at = world.assigned(name)
            clock = float(at.setting["gpu.clock_mhz"])
            world.report(at, completed(factor * clock / 100.0, 100.0), name)
    assert show(world, order, window(3.0, 100.0), 3) is Phase.HOLDING
    assert "40.0 ± " in said(world)


@pytest.mark.parametrize(("power_w", "phase"), [(310.0, Phase.HOLDING), (600.0, Phase.BASELINE)])
def test_the_canary_has_its_share_of_a_limit_on_a_sum(
    world: World, power_w: float, phase: Phase
) -> None:
    order = begun(world, constraints=("power_w <= 900",))  # 500 W each at the baseline
    assert order.limits[0][0].value == 900.0
    seen = window(6.0, extra={"power_w": Estimate.of_mean(power_w, 1.0, 10)})
    assert show(world, order, seen, 3) is phase
    if phase is Phase.BASELINE:
        assert "power_w <= 450 is not proven to hold" in said(world)


def test_a_hold_that_the_canary_ends_starts_the_study_over(world: World) -> None:
    order = begun(world)
    ended = HoldReport.of(
        order,
        device="a",
        setting=setting(600),
        ended="latency_p99_ms was 140 in 3 windows in a row",
    )
    assert world.loop.hold_reports.observe(ended).result == "closed"
    assert world.store.studies.get("s1").phase is Phase.BASELINE
    assert world.loop.hold_reports.observe(ended).result == "late"


def test_a_canary_that_was_paused_or_stopped_is_judged_by_the_windows_since(world: World) -> None:
    order = begun(world)
    show(world, order, count=2)
    verbs = Operations(world.loop)
    verbs.pause("s1", Change())
    assert all(isinstance(world.ask(name), Release) for name in BOTH)
    assert verbs.resume("s1", Change()).phase is Phase.CANARY
    again = world.ask("a")
    assert isinstance(again, HoldOrder)
    assert show(world, again, count=2) is Phase.CANARY
    verbs.stop_all(Change())
    verbs.lift(Change())
    lifted = world.ask("a")
    assert isinstance(lifted, HoldOrder)
    assert lifted.revision > again.revision, "an agent takes no ended hold up again"
    assert show(world, lifted, count=2) is Phase.CANARY
    assert show(world, lifted) is Phase.HOLDING


def test_an_approved_proposal_is_held_on_the_canary_first(world: World) -> None:
    world.start(*BOTH, terms=replace(TERMS, safety=Safety.ADVISE))
    while not isinstance(world.step(truth, *BOTH)["a"], Release):
        pass
    verbs = Operations(world.loop)
    for _ in range(2):
        assert verbs.approve("s1", Decision(who="ann")).phase is Phase.CANARY
    order = world.ask("a")
    assert isinstance(order, HoldOrder)
    assert isinstance(world.ask("b"), Release)
    assert show(world, order, count=3) is Phase.HOLDING


def test_the_baseline_needs_no_canary(world: World) -> None:
    world.start(*BOTH, terms=TERMS)
    for _ in range(40):
        orders = world.step(lambda _: completed(), *BOTH)
        if all(isinstance(order, HoldOrder) for order in orders.values()):
            return
    raise AssertionError("the baseline is not held")


@pytest.mark.parametrize("terms", [TERMS, replace(TERMS, canary="")])
def test_only_a_hold_of_something_else_than_the_baseline_is_staged(terms: Terms) -> None:
    at = study(terms=terms, devices=BOTH)
    held = Move(Phase.HOLDING, "confirmed", WINNER)
    assert staged(at, held) == (replace(held, phase=Phase.CANARY) if terms.canary else held)
    steps = (
        Assign(setting(600), "step 1"),
        Move(Phase.CONFIRMING, "low enough", WINNER),
        Move(Phase.PROPOSED, "asks", WINNER),
        Move(Phase.HOLDING, "nothing won", Plan.single(at.baseline)),
    )
    assert [staged(at, step) for step in steps] == list(steps)


def report(name: str, number: int, energy_j: float, *, late: bool = False) -> Report:
    return Report(
        study="s1",
        trial=number,
        device=name,
        attempt=1,
        token=1,
        nonce="n",
        outcome=completed(energy_j),
        received_at=START,
        late=late,
    )


def test_the_canarys_result_comes_from_its_own_timely_reports() -> None:
    at = study(Phase.CANARY, terms=TERMS, devices=BOTH, plan=WINNER, since_trial=3)
    trials = [
        trial(2, phase=Phase.CONFIRMING),
        trial(3, phase=Phase.TUNING),
        trial(4, phase=Phase.CONFIRMING),
        trial(5, phase=Phase.CONFIRMING),
        trial(6, phase=Phase.CONFIRMING, state=TrialState.RUNNING),
    ]

    def told(number: int) -> list[Report]:
        if number == 5:
            return [report("b", number, 2.0)]
        late = report("a", number, 9.0, late=True)
        return [report("a", number, 1.0), report("b", number, 2.0), late]

    (own,) = own_trials(at, trials, told)
    assert (own.number, own.shown["energy_j"].mean) == (4, 1.0)


LOAD = "requests_in_system"
BY_LOAD = Plan((Row(3.0, setting(600)), Row(math.inf, setting(800))), by=LOAD)


def of_rows(*counts: tuple[int, int, float]) -> CanaryResult | None:
    """Judge windows of each row, given as its clock, their number, and their joules."""
    at = study(Phase.CANARY, terms=TERMS, devices=BOTH, plan=BY_LOAD)
    trials: list[Trial] = []
    for clock in (1000, 600, 1000, 800):
        measured = window(clock / 100.0)
        trials.append(trial(len(trials) + 1, setting(clock), measured, phase=Phase.CONFIRMING))
    windows = [held(clock, n, joules) for clock, count, joules in counts for n in range(count)]
    return judged(past(at, trials), trials, windows)


def held(clock: int, minute: int, energy_j: float, context: Context | None = None) -> Observation:
    moment = START + timedelta(minutes=minute)
    seen = replace(window(energy_j, context=context), started_at=moment)
    return Observation(study="s1", device="a", setting=setting(clock), measurement=seen, at=moment)


def test_a_plan_is_confirmed_by_the_first_row_that_was_held_for_long_enough() -> None:
    assert of_rows((600, 2, 6.0), (800, 2, 8.0)) is None
    result = of_rows((600, 3, 6.0), (800, 2, 8.0))
    assert result is not None and result.confirmed
    assert of_rows((1000, 9, 10.0)) is None, "the baseline proves nothing"


def test_a_row_that_contradicts_is_enough_against_a_plan() -> None:
    result = of_rows((600, 3, 6.0), (800, 3, 9.9))
    assert result is not None and not result.confirmed


def test_a_new_driver_on_any_of_the_devices_ends_the_canary(world: World) -> None:
    order = begun(world)
    world.loop.register(device("b", driver="2"))
    stored: Study = world.store.studies.get("s1")
    assert stored.phase is Phase.BASELINE
    assert show(world, order, count=4) is Phase.BASELINE


def test_after_a_crash_before_it_was_stored_the_next_window_decides_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = begun(world)
    show(world, order, count=2)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(world.store.studies, "revise", dies)
        show(world, order)
    world.loop = world.restarted()
    assert world.store.studies.get("s1").phase is Phase.CANARY
    assert isinstance(world.ask("b"), Release)
    assert show(world, order) is Phase.HOLDING
    assert "in 4 windows on a" in said(world)
