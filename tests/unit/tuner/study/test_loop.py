"""One study at work over a store: orders, reports, crashes and operators."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.sql.trials import Trials
from tests.builders import SPACE, Descend, completed, device, knob, setting, study, window
from tests.errors import raised
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import (
    Conflict,
    Device,
    Done,
    InvalidInput,
    NotFound,
    Outcome,
    Part,
    Past,
    Phase,
    Plan,
    Setting,
    Space,
    StaleToken,
    StoreError,
    Suggestion,
    Terms,
    TrialState,
    Try,
    TuningError,
    Value,
)
from tuner.service.operations import Operations
from tuner.study.lifecycle import FAILED_IN_A_ROW
from tuner.study.trial_reports import MOST_ABANDONED, MOST_LATE
from tuner.wire import (
    ORDER,
    Assignment,
    Change,
    HoldOrder,
    HoldReport,
    Idle,
    Release,
    Renewal,
    Reverted,
)


def test_a_device_without_a_study_is_released(world: World) -> None:
    world.loop.register(device())
    assert isinstance(world.ask(), Release)
    with pytest.raises(NotFound):
        world.ask("nobody")


def test_a_study_goes_from_baseline_to_hold(world: World) -> None:
    world.start()
    hold = world.run(truth)
    assert hold.plan == Plan.single(setting(600))
    phases = [t.phase for t in world.store.trials.list("s1")]
    assert phases == [Phase.BASELINE] * 2 + [Phase.TUNING] * 2 + [Phase.CONFIRMING] * 4
    assert world.store.studies.get("s1").phase is Phase.HOLDING


def test_an_assignment_has_all_that_a_trial_needs(world: World) -> None:
    world.start()
    for _ in range(2):
        world.report(world.assigned(), completed())
    order = world.assigned()
    assert order.metrics == ("energy_j", "latency_p99_ms")
    assert order.limits[0].value == pytest.approx(120.0)
    assert (order.context, order.expected) == ({}, {"arrival_rate_per_s": 50.0})
    assert order.why == "step 1"


def test_an_answer_that_got_lost_is_given_again_as_it_was(world: World) -> None:
    world.start()
    assert world.assigned() == world.assigned()


def test_the_same_agent_asking_after_a_crash_gets_the_same_trial(world: World) -> None:
    world.start()
    first = world.assigned()
    again = world.assigned(agent="host/2")
    assert (again.trial, again.setting) == (first.trial, first.setting)
    assert again.attempt == 2
    assert again.token > first.token


def test_the_first_of_two_agents_at_one_device_is_refused(world: World) -> None:
    world.start()
    world.assigned(agent="host/1")
    taken = world.assigned(agent="host/2")
    with raised(Conflict, "host/2", "host/1") as refused:
        world.ask(agent="host/1")
    assert "another `name` in one agent.toml" in refused.value.hint
    assert world.assigned(agent="host/2") == taken, "the other works on, undisturbed"
    assert world.assigned(agent="host/3").attempt == 3, "and may crash in its turn"


def test_another_agent_does_not_get_a_running_trial(world: World) -> None:
    world.start()
    world.assigned()
    assert isinstance(world.ask(agent="other/1"), Idle)
    world.time.sleep(31.0)
    assert world.assigned(agent="other/1").attempt == 2


def test_a_late_report_is_kept_and_closes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
    first = world.assigned()
    second = world.assigned(agent="host/2")
    assert world.report(first, completed(1.0)) == "late"
    assert not world.store.trials.list("s1")[0].state.final
    assert world.report(second, completed(9.0)) == "closed"
    kept = world.store.trials.reports("s1", first.trial)
    assert [r.late for r in kept] == [True, False]
    ended = world.store.trials.list("s1")[0].measurement
    assert ended is not None
    assert ended.estimates["energy_j"].mean == pytest.approx(9.0)


@pytest.mark.promise("an agent is compromised")
def test_a_report_with_a_guessed_token_closes_nothing_and_hides_nothing(world: World) -> None:
    world.start()
    order = world.assigned()
    forged = order.model_copy(update={"nonce": "guess"})
    assert world.report(forged, completed(1.0)) == "late"
    with pytest.raises(StaleToken):
        world.loop.renew(Renewal(device="sim", token=order.token, nonce="guess"))
    assert not world.store.trials.list("s1")[0].state.final
    assert world.report(order, completed(9.0)) == "closed"
    ended = world.store.trials.list("s1")[0].measurement
    assert ended is not None
    assert ended.estimates["energy_j"].mean == pytest.approx(9.0)


def test_late_reports_beyond_a_few_are_refused_for_good(world: World) -> None:
    world.start("a", "b")
    order = world.assigned("a")
    for token in range(100, 100 + MOST_LATE):
        late = order.model_copy(update={"token": token})
        assert world.report(late, completed(), "a") == "late"
    noted = len(world.store.events.list("s1"))
    with raised(StaleToken, MOST_LATE):
        world.report(order.model_copy(update={"token": 99}), completed(), "a")
    assert len(world.store.trials.reports("s1", order.trial)) == MOST_LATE
    assert len(world.store.events.list("s1")) == noted
    assert world.report(late, completed(), "a") == "duplicate"
    assert world.report(late, completed(), "b") == "late", "another device has its own"
    assert world.report(order, completed(), "a") == "kept", "what is in force is always taken"


def test_a_report_on_a_study_without_the_device_is_refused(world: World) -> None:
    world.start()
    world.loop.register(device("other"))
    hold = world.run(truth)
    message = HoldReport.of(
        hold, device="other", setting=setting(600), measurement=window(), ended="for no reason"
    )
    with pytest.raises(InvalidInput, match="other"):
        world.loop.hold_reports.observe(message)
    assert world.store.observations.list("s1") == ()
    assert world.store.studies.get("s1").phase is Phase.HOLDING
    world.loop.changes.start_over(world.store.studies.get("s1"), "again")
    with pytest.raises(InvalidInput, match="other"):
        world.report(world.assigned(), completed(), "other")
    assert world.store.trials.reports("s1", 9) == ()


def test_a_report_that_comes_twice_counts_once(world: World) -> None:
    world.start()
    order = world.assigned()
    assert world.report(order, completed()) == "closed"
    assert world.report(order, completed()) == "duplicate"
    assert len(world.store.trials.reports("s1", order.trial)) == 1


def test_a_report_after_the_lease_expired_still_counts_without_a_newer_attempt(
    world: World,
) -> None:
    world.start()
    order = world.assigned()
    world.time.sleep(120.0)
    world.loop.trial_reports.reap()
    assert world.report(order, completed()) == "closed"


def test_an_agent_that_never_comes_back_ends_its_trial(world: World) -> None:
    world.start()
    order = world.assigned()
    assert world.wait(world.patience_s) == 1
    assert world.store.trials.list("s1")[0].state is TrialState.ABORTED
    with pytest.raises(NotFound):
        world.loop.renew(Renewal(device="sim", token=order.token, nonce=order.nonce))
    assert world.assigned().trial == order.trial + 1


def test_three_attempts_without_a_report_fail_the_trial(world: World) -> None:
    world.start()
    numbers = [world.assigned(agent=f"host/{n}").trial for n in range(4)]
    assert numbers == [1, 1, 1, 2]
    assert world.store.trials.list("s1")[0].state is TrialState.FAILED


def test_renewing_keeps_a_lease_and_a_stale_token_is_refused(world: World) -> None:
    world.start()
    first = world.assigned()
    world.time.sleep(20.0)
    world.loop.renew(Renewal(device="sim", token=first.token, nonce=first.nonce))
    lease = world.store.leases.get("sim")
    assert lease is not None
    assert lease.expires_at == world.time.now() + timedelta(seconds=world.loop.lease_s)
    world.assigned(agent="host/2")
    with pytest.raises(StaleToken):
        world.loop.renew(Renewal(device="sim", token=first.token, nonce=first.nonce))


def test_a_tuner_that_died_continues_where_it_was(world: World) -> None:
    world.start()
    for count in range(8):
        restarted = replace(world.loop, policies=lambda _: Descend())
        world.loop = restarted
        order = world.assigned()
        assert order.trial == count + 1
        world.report(order, truth(order.setting))
    assert isinstance(world.ask(), HoldOrder)


@pytest.mark.parametrize("reaped", [False, True])
def test_a_crash_between_report_and_end_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, reaped: bool
) -> None:
    world.start()
    order = world.assigned()
    # The report was stored; the process died before the trial was ended.
    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(world.store.trials, "end", _dies)
        world.report(order, completed(7.0))
    if reaped:
        world.time.sleep(1e6)
        world.loop.trial_reports.reap()
    else:
        assert world.assigned().trial == order.trial + 1
    first = world.store.trials.list("s1")[0]
    assert first.state is TrialState.COMPLETED
    assert len(world.store.trials.reports("s1", 1)) == 1


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_tuner_started_anew_gives_agents_their_time_again(world: World) -> None:
    world.start()
    order = world.assigned()
    world.time.sleep(1e5)
    world.loop = world.restarted()
    assert world.wait(world.loop.abandon_s) == 0
    assert world.report(order, completed()) == "closed"


@pytest.mark.promise("the tuner's clock steps, or its host is suspended")
def test_a_tuner_that_was_suspended_gives_agents_their_time_again(world: World) -> None:
    world.start()
    order = world.assigned()
    world.wait(world.loop.abandon_s)
    world.time.sleep(1e5)
    assert world.wait(world.loop.abandon_s) == 0, "it had not listened"
    assert world.report(order, completed()) == "closed"


def test_a_tuner_whose_database_was_away_gives_agents_their_time_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start()
    order = world.assigned()
    with monkeypatch.context() as broken:
        broken.setattr(Trials, "at_work", _unwell)
        for _ in range(100):
            world.time.sleep(10.0)
            with pytest.raises(StoreError):
                world.loop.trial_reports.reap()
    assert world.wait(world.loop.abandon_s) == 0, "no renewal could be heard meanwhile"
    assert world.report(order, completed()) == "closed"


def _unwell(*_: object) -> NoReturn:
    raise StoreError("the database does not answer")


@pytest.mark.promise(
    "the tuner's clock steps, or its host is suspended",
    "no trial ends, no device goes offline",
)
@pytest.mark.parametrize("step", [timedelta(days=1), timedelta(days=-1)])
def test_a_step_of_the_wall_clock_ends_no_trial(world: World, step: timedelta) -> None:
    world.start()
    order = world.assigned()
    world.time.step(step)
    assert world.loop.trial_reports.reap() == 0
    assert world.assigned() == order
    assert isinstance(world.ask(agent="other/1"), Idle), "nor does it let another agent have it"
    assert world.report(order, completed()) == "closed"


@pytest.mark.parametrize("step", [timedelta(days=1), timedelta(days=-1)])
def test_a_silent_agent_is_given_up_at_any_wall_time(world: World, step: timedelta) -> None:
    world.start()
    world.assigned()
    world.time.step(step)
    assert world.wait(world.loop.abandon_s) == 0
    assert world.wait(world.patience_s - world.loop.abandon_s) == 1


def test_a_renewal_that_another_tuner_heard_counts(world: World) -> None:
    world.start()
    order = world.assigned()
    other = world.restarted()
    for _ in range(5):
        assert world.wait(world.loop.abandon_s) == 0
        other.renew(Renewal(device="sim", token=order.token, nonce=order.nonce))
    assert world.wait(world.patience_s) == 1


def test_a_device_that_never_polls_does_not_keep_a_trial_running_for_ever(world: World) -> None:
    world.start("a", "b")
    world.report(world.assigned("a"), completed(), "a")
    assert world.wait(world.patience_s) == 1
    assert world.store.trials.list("s1")[0].state is TrialState.ABORTED


def test_a_study_whose_trials_are_abandoned_one_after_another_is_paused(world: World) -> None:
    world.start("a", "b")
    for _ in range(MOST_ABANDONED):
        assert world.store.studies.get("s1").phase is Phase.BASELINE
        world.report(world.assigned("a"), completed(), "a")
        assert world.wait(world.patience_s) == 1
    assert world.store.studies.get("s1").phase is Phase.PAUSED
    assert world.store.events.list("s1")[-1].text.endswith("check the agent of b")
    assert isinstance(world.ask("a"), Release)


def test_a_policy_that_fails_pauses_its_study_with_the_reason(world: World) -> None:
    world.start()
    for _ in range(2):
        world.report(world.assigned(), completed())

    class Broken:
        def suggest(self, past: Past) -> Suggestion:
            raise ZeroDivisionError("no idea")

    world.loop.policies = lambda _: Broken()
    assert isinstance(world.ask(), Release)
    assert world.store.studies.get("s1").phase is Phase.PAUSED
    text = world.store.events.list(study="s1")[-1].text
    assert text.endswith("failed: ZeroDivisionError: no idea; see the tuner's log")


PAUSED = Outcome(state=TrialState.FAILED, reason="GPU-1 is paused: somebody else set gpu.clock_mhz")


@pytest.mark.parametrize("after", [0, 2, 3, 4, 6])
def test_a_device_that_fails_at_every_setting_soon_gets_no_more_trials(
    world: World, after: int
) -> None:
    world.start()
    for count in range(20):
        order = world.ask()
        if isinstance(order, Release):
            break
        assert isinstance(order, Assignment), order
        world.report(order, truth(order.setting) if count < after else PAUSED)
    assert isinstance(order, Release), order
    assert len(world.store.trials.list("s1")) <= after + 2 * FAILED_IN_A_ROW
    at = world.store.studies.get("s1")
    assert at.phase is Phase.PAUSED
    assert "somebody else set gpu.clock_mhz" in world.store.events.list(study="s1")[-1].text
    assert isinstance(world.ask(), Release)

    Operations(world.loop).resume("s1", Change(who="ann"))
    assert world.run(truth).plan == Plan.single(setting(600))


def test_a_hold_of_the_baseline_has_no_limit_to_break(world: World) -> None:
    world.start()
    hold = world.run(lambda _: completed())
    assert hold.plan == Plan.single(setting())
    assert hold.limits == ((),)


def test_like_devices_run_each_trial_together(world: World) -> None:
    world.start("a", "b")
    first, second = world.assigned("a"), world.assigned("b")
    assert first.trial == second.trial
    assert first.setting == second.setting
    assert world.report(first, completed(10.0), "a") == "kept"
    assert isinstance(world.ask("a"), Idle)
    assert world.report(second, completed(12.0, 130.0), "b") == "closed"
    ended = world.store.trials.list("s1")[0].measurement
    assert ended is not None
    assert ended.estimates["energy_j"].mean == pytest.approx(22.0)
    assert ended.estimates["latency_p99_ms"].mean == pytest.approx(130.0)


def test_a_hold_that_ended_starts_the_evidence_afresh(world: World) -> None:
    world.start()
    hold = world.run(truth)
    sent = HoldReport.of(
        hold,
        device="sim",
        setting=setting(600),
        measurement=window(6.0, 140.0),
        ended="latency_p99_ms broke its limit in 3 windows",
    )
    assert world.loop.hold_reports.observe(sent).result == "closed"
    stored = world.store.studies.get("s1")
    assert stored.phase is Phase.BASELINE
    assert stored.since_trial == 9
    assert len(world.store.observations.list("s1")) == 1
    assert world.loop.hold_reports.observe(sent).result == "late"


def test_a_new_driver_starts_the_evidence_afresh(world: World) -> None:
    world.start()
    world.run(truth)
    world.loop.register(device(driver="2"))
    stored = world.store.studies.get("s1")
    assert (stored.phase, stored.since_trial, stored.phase_since) == (Phase.BASELINE, 9, 9)
    world.loop.register(device(driver="2"))
    assert world.store.studies.get("s1").revision == stored.revision


def test_a_new_driver_is_not_overlooked_while_paused_or_measuring_the_baseline(
    world: World,
) -> None:
    world.start()
    world.run(truth)
    paused = world.store.studies.get("s1").moved(Phase.PAUSED)
    world.store.studies.revise(paused, "test", "pause", world.time.now())
    world.loop.register(device(driver="2"))
    resumed = world.store.studies.get("s1").resumed()
    assert (resumed.phase, resumed.since_trial) == (Phase.BASELINE, 9)
    world.store.studies.revise(resumed, "test", "resume", world.time.now())
    world.report(world.assigned(), completed(10.0, 100.0))
    world.loop.register(device(driver="3"))
    assert world.store.studies.get("s1").since_trial == 10


def test_trials_run_only_in_the_hours_allowed_but_holding_always(world: World) -> None:
    world.start()
    world.run(truth)
    world.loop.hours = lambda _: False
    assert isinstance(world.ask(), HoldOrder)
    world.loop.changes.start_over(world.store.studies.get("s1"), "again")
    assert isinstance(world.ask(), Idle)


STAYS = "every device of host was put back; lift it with `jouletune agent revert --lift` on host"


@pytest.mark.parametrize("holding", [False, True])
def test_a_device_that_takes_no_orders_gets_none_and_its_reason_is_shown(
    world: World, holding: bool
) -> None:
    world.start()
    if holding:
        world.run(truth)
    tried = world.store.trials.count("s1")
    for _ in range(2):
        order = world.ask(unable=STAYS)
        assert isinstance(order, Idle) and STAYS in order.why
    assert world.store.trials.count("s1") == tried
    assert isinstance(world.ask(), HoldOrder if holding else Assignment)
    texts = [e.text for e in world.store.events.list(device="sim") if e.kind in ("unable", "able")]
    assert texts == [STAYS, "the device accepts assignments again"]


def test_a_study_starts_no_trial_while_one_of_its_devices_takes_no_order(world: World) -> None:
    world.start("a", "b")
    assert isinstance(world.ask("b", unable=STAYS), Idle)
    order = world.ask("a")
    assert isinstance(order, Idle) and f"b: {STAYS}" in order.why
    assert world.store.trials.count("s1") == 0
    world.ask("b")
    assert world.assigned("a").trial == 1


def test_a_trial_that_one_of_its_devices_cannot_take_is_aborted(world: World) -> None:
    world.start("a", "b")
    order = world.assigned("a")
    assert isinstance(world.ask("b", unable=STAYS), Idle)
    ended = world.store.trials.list("s1")[0]
    assert (ended.state, ended.reason) == (TrialState.ABORTED, STAYS)
    with pytest.raises(NotFound):
        world.loop.renew(Renewal(device="a", token=order.token, nonce=order.nonce))


def test_a_paused_study_releases_its_device_after_any_failure(world: World) -> None:
    world.start()
    Operations(world.loop).pause("s1", Change(who="ann"))
    assert isinstance(world.ask(unable=STAYS), Release)


@pytest.mark.parametrize("state", ["trial", "hold"])
def test_a_revert_on_the_host_pauses_the_study_that_has_the_device(
    world: World, state: str
) -> None:
    world.start()
    if state == "hold":
        world.run(truth)
    else:
        world.assigned()
    operations = Operations(world.loop)
    word = Reverted(device="sim", why="an operator reverted sim back on host at 12:00")
    assert operations.reverted(word).result == "closed"
    stored = world.store.studies.get("s1")
    assert stored.phase is Phase.PAUSED
    assert world.store.studies.latest("s1").why == word.why
    assert isinstance(world.ask(), Release)
    operations.resume("s1", Change(who="ann"))
    assert operations.reverted(word).result == "duplicate"
    assert isinstance(world.ask(), HoldOrder if state == "hold" else Assignment)


def test_a_revert_of_a_device_without_a_study_changes_nothing(world: World) -> None:
    world.loop.register(device())
    word = Reverted(device="sim", why="an operator reverted sim back on host at 12:00")
    assert Operations(world.loop).reverted(word).result == "late"


def offering(*clocks: int, **cannot: str) -> Device:
    """Return the device of the tests with fewer clocks, and why."""
    (clock, batch) = SPACE.knobs
    space = Space((replace(clock, values=clocks), batch))
    return device(space=space, cannot=cannot)


def test_a_refused_knob_leaves_the_study_which_continues(world: World) -> None:
    # A memory lock, or a laptop's power limit, is refused when it is set, although its range is known.
    world.start()
    for _ in range(2):
        world.report(world.assigned(), completed())
    refused = world.assigned()
    world.report(refused, Outcome(state=TrialState.FAILED, reason="not supported"))
    world.loop.register(offering(1000, **{"gpu.clock_mhz": "Not Supported"}))
    study = world.store.studies.get("s1")
    assert study.phase is Phase.TUNING
    assert study.space.knob("gpu.clock_mhz").values == (1000,)
    past = Past(study=study, trials=tuple(world.store.trials.list("s1")))
    assert (past.spent, len(past.trials)) == (1, 2)
    (event,) = [e for e in world.store.events.list() if e.kind == "narrowed"]
    assert "gpu.clock_mhz: Not Supported" in event.text
    world.loop.register(offering(1000))
    assert world.store.studies.get("s1").revision == study.revision


def test_a_plan_that_a_device_no_longer_offers_is_dropped(world: World) -> None:
    world.start()
    world.run(truth)
    world.loop.register(offering(800, 1000))
    study = world.store.studies.get("s1")
    assert study.phase is Phase.BASELINE
    assert study.space.knob("gpu.clock_mhz").values == (800, 1000)


def test_a_trial_of_a_grant_removed_meanwhile_fails_by_name(world: World) -> None:
    world.start()
    for _ in range(2):
        world.report(world.assigned(), completed())
    running = world.assigned()
    assert running.setting["gpu.clock_mhz"] == 800
    world.loop.register(offering(600, 1000))
    (*_, ended) = world.store.trials.list("s1")
    assert (ended.number, ended.state) == (running.trial, TrialState.FAILED)
    assert "sim no longer offers gpu.clock_mhz=800" in ended.reason
    with pytest.raises((Conflict, NotFound)):  # so the agent restores the setting
        world.loop.renew(Renewal(device="sim", token=running.token, nonce=running.nonce))
    assert world.report(running, completed()) == "late"
    past = Past(study=world.store.studies.get("s1"), trials=tuple(world.store.trials.list("s1")))
    assert past.spent == 1
    assert isinstance(world.ask(), HoldOrder)  # the study continues to its policy's plan


def test_a_trial_of_an_offered_setting_continues(world: World) -> None:
    world.start()
    for _ in range(2):
        world.report(world.assigned(), completed())
    running = world.assigned()
    world.loop.register(offering(800, 1000))
    again = world.assigned()
    assert (again.trial, again.token) == (running.trial, running.token)


def test_a_device_that_does_not_answer_takes_nothing_from_its_study(world: World) -> None:
    world.start()
    before = world.store.studies.get("s1")
    world.loop.register(device(space=Space(())))
    assert world.store.studies.get("s1") == before


@pytest.mark.parametrize("starts", [True, False], ids=["at the start", "at a poll"])
@pytest.mark.parametrize("began", [Phase.TUNING, Phase.HOLDING])
def test_a_study_that_follows_two_signals_is_paused_with_the_next_step(
    world: World, began: Phase, starts: bool
) -> None:
    world.loop.register(device())
    plan = Plan.single(setting()) if began is Phase.HOLDING else None
    terms = Terms(plan_by="arrival_rate_per_s,waiting")
    world.store.studies.add(study(began, terms=terms, plan=plan), "test", "created")
    if began is Phase.TUNING:
        world.store.trials.begin("s1", setting(600), Phase.TUNING, "", world.time.now())
    if starts:
        world.loop.pause_unsupported()
    else:
        assert isinstance(world.ask(), Release)
    paused = world.store.studies.get("s1")
    assert paused.phase is Phase.PAUSED and not world.store.trials.running("s1")
    assert "(arrival_rate_per_s,waiting)" in paused.reason and "study stop s1" in paused.reason
    verbs = Operations(world.loop)
    verbs.resume("s1", Change(who="ann"))
    assert isinstance(world.ask(), Release)
    assert world.store.studies.get("s1").phase is Phase.PAUSED
    assert verbs.stop("s1", Change(who="ann")).phase is Phase.STOPPED


@dataclass
class Insists:
    """A policy that tries a setting three times, then proposes it."""

    setting: Setting

    def suggest(self, past: Past) -> Suggestion:
        if sum(t.phase is Phase.TUNING for t in past.trials) < 3:
            return Try(self.setting, "it insists")
        return Done(Plan.single(self.setting), "it insists")


HOSTILE: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from([2**70, 1e19, -1e300, True, "x" * 2_000, "a\x1b[2J", "a\u2028b"]),
    st.text(max_size=9),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(
    word=HOSTILE,
    bound=st.sampled_from([0.0, 1.2, 1e9, 1e18]),
    unit=st.sampled_from(["", "x baseline"]),
    latency=st.floats(1e-9, 1e18),
    seconds=st.floats(1e-3, 1e12),
)
def test_no_order_is_repeated_that_an_agent_cannot_read(
    word: Value, bound: float, unit: str, latency: float, seconds: float
) -> None:
    world, asked = World(), Counter[int]()
    space = Space((SPACE.knobs[0], knob("word", ("plain", word), "plain", Part.WORKLOAD)))
    world.loop.policies = lambda _: Insists({"gpu.clock_mhz": 800, "word": word})
    limits = (f"latency_p99_ms <= {bound!r}{unit}",)
    try:
        terms = Terms(trials=4, window_s=seconds, valid_for_s=seconds)
        world.start(space=space, constraints=limits, terms=terms)
    except (TuningError, ValueError):
        return  # refused by name before any order
    for _ in range(40):
        order = world.ask()
        ORDER.validate_json(order.model_dump_json())  # type: ignore[attr-defined]
        if isinstance(order, Assignment):
            asked[order.trial] += 1
            world.report(order, completed(5.0 if order.setting["word"] == word else 9.0, latency))
    assert max(asked.values(), default=0) <= 1
    assert not isinstance(order, Assignment), "it comes to rest"
    for trial in world.store.trials.list("s1"):
        assert trial.state is not TrialState.RUNNING and (trial.reason or trial.state.evidence)
