"""The stop of the whole fleet, and its end: nothing runs meanwhile, and no study changes."""

from __future__ import annotations

from tests.builders import START, applied, completed, setting
from tests.errors import raised
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Conflict, FleetStop, Level, NotFound, TrialState
from tuner.service.fleet import FleetOverview
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.wire import (
    Assignment,
    Change,
    Health,
    HoldOrder,
    HoldReport,
    Idle,
    Poll,
    Release,
    Renewal,
    StopView,
)

STOP = Change(who="ann", why="smoke in rack 4")


def holding(world: World, revision: int = 1) -> object:
    at = applied(level=Level.HOLD, at=setting(600))
    poll = Poll(agent="host/1", applied=at, holding="s1", revision=revision)
    return world.loop.order("sim", poll)


def states(view: StopView) -> dict[str, str]:
    return {d.device: d.state for d in view.devices}


def test_a_hold_is_released_and_the_study_stays_as_it_is(world: World) -> None:
    world.start()
    world.run(truth)
    before = world.store.studies.get("s1")
    assert isinstance(holding(world), HoldOrder)
    Operations(world.loop).stop_all(STOP)
    answer = holding(world)
    assert isinstance(answer, Release)
    assert answer.why == "stop-all by ann: smoke in rack 4"
    assert isinstance(world.ask(), Release)
    assert world.store.studies.get("s1") == before


def test_a_running_trial_is_ended_at_once_and_not_renewed(world: World) -> None:
    world.start()
    order = world.assigned()
    Operations(world.loop).stop_all(STOP)
    (trial,) = world.store.trials.list("s1")
    assert (trial.state, trial.reason) == (TrialState.ABORTED, "stop-all by ann: smoke in rack 4")
    with raised(Conflict, "stopped"):
        world.loop.renew(Renewal(device="sim", token=order.token, nonce=order.nonce))
    assert isinstance(world.ask(), Release)
    assert world.report(order, completed()) == "late"


def test_a_trial_that_began_despite_the_stop_ends_at_its_next_renewal_or_poll(world: World) -> None:
    world.start()
    order = world.assigned()
    world.store.stops.order(FleetStop(at=START, who="ann"))  # by another process, without our locks
    with raised(Conflict, "stopped"):
        world.loop.renew(Renewal(device="sim", token=order.token, nonce=order.nonce))
    assert world.store.trials.running("s1")
    assert isinstance(world.ask(), Release)
    assert not world.store.trials.running("s1")


def test_no_trial_runs_in_a_study_created_under_a_stop(world: World) -> None:
    Operations(world.loop).stop_all(STOP)
    world.start()
    assert isinstance(world.ask(), Release)
    assert world.store.trials.list("s1") == ()


def test_devices_that_are_back_are_listed(world: World) -> None:
    verbs = Operations(world.loop)
    world.start("a", "b")
    world.loop.register(world.store.devices.get("a"))
    holding_at_600 = applied("a", level=Level.HOLD, at=setting(600))
    world.ask("a")
    world.ask("b")
    before = states(verbs.stop_all(STOP))
    assert before == {"a": "not yet", "b": "not yet"}, "what was said before does not count"
    world.ask("b")
    assert states(verbs.stop_state()) == {"a": "not yet", "b": "original"}
    world.ask("a")
    assert states(verbs.stop_state()) == {"a": "original", "b": "original"}
    world.loop.order("a", Poll(agent="host/1", applied=holding_at_600))
    assert states(verbs.stop_state()) == {"a": "not yet", "b": "original"}, "it took up its hold"


def test_a_lifted_stop_lets_a_hold_go_on_without_a_new_trial(world: World) -> None:
    world.start()
    first = world.run(truth)
    count = world.store.trials.count("s1")
    verbs = Operations(world.loop)
    verbs.stop_all(STOP)
    ended = HoldReport.of(first, device="sim", setting=setting(600), ended="stop-all by ann")
    assert world.loop.hold_reports.observe(ended).result == "late"
    verbs.lift(Change(who="bob"))
    again = world.ask()
    assert isinstance(again, HoldOrder)
    assert again.plan == first.plan
    assert again.revision > first.revision, "an agent does not take up what it has ended"
    assert world.loop.hold_reports.observe(ended).result == "late", (
        "a word that comes late ends nothing"
    )
    assert isinstance(world.ask(), HoldOrder)
    assert world.store.trials.count("s1") == count


def test_a_lifted_stop_lets_a_search_go_on(world: World) -> None:
    world.start()
    world.report(world.assigned(), completed())
    world.assigned()
    verbs = Operations(world.loop)
    verbs.stop_all(STOP)
    world.ask()
    verbs.lift(Change())
    hold = world.run(truth)
    assert hold.plan.rows[0].setting == setting(600)
    assert verbs.study("s1").trials == {"completed": 8, "aborted": 1}


def test_the_first_order_stays_and_both_ends_are_in_the_log(world: World) -> None:
    verbs = Operations(world.loop)
    verbs.stop_all(STOP)
    again = verbs.stop_all(Change(who="bob"))
    assert (again.in_force, again.who, again.why) == (True, "ann", "smoke in rack 4")
    verbs.lift(Change(who="bob", why="false alarm"))
    verbs.lift(Change(who="bob"))
    assert verbs.stop_state() == StopView(in_force=False)
    events = [(e.kind, e.text) for e in verbs.events()]
    assert [kind for kind, _ in events] == ["stop-all", "stop-all lifted"]
    assert "smoke in rack 4" in events[0][1]
    assert events[1][1] == "stop-all lifted by bob: false alarm"


def test_a_study_under_a_stop_is_shown_as_stopped(world: World) -> None:
    world.start()
    verbs = Operations(world.loop)
    assert not verbs.study("s1").stopped
    verbs.stop_all(STOP)
    assert verbs.study("s1").stopped
    assert isinstance(world.ask(), Release)
    verbs.lift(STOP)
    assert not verbs.study("s1").stopped
    assert isinstance(world.ask(), Assignment)


def test_a_released_device_stays_released_over_restarts_and_its_study_waits(world: World) -> None:
    world.start("sim", "b")
    order = world.assigned()
    Operations(world.loop).stop_all(STOP, "sim")
    with raised(Conflict, "sim is stopped"):
        world.loop.renew(Renewal(device="sim", token=order.token, nonce=order.nonce))
    world.restarted()
    verbs = Operations(world.loop)
    assert isinstance(world.ask("sim"), Release)
    assert not world.store.trials.running("s1")
    assert isinstance(world.ask("b"), Idle), "no trial starts without the released device"
    assert states(verbs.stop_state("sim")) == {"sim": "original"}
    assert not verbs.stop_state().in_force
    by_name = {view.device.id: view for view in verbs.devices()}
    assert "released by ann: smoke in rack 4" in by_name["sim"].unable
    assert not by_name["b"].unable and "sim: released by ann" in verbs.study("s1").unable
    health = {row.device: row.health for row in FleetOverview(verbs, Summaries(verbs)).view().rows}
    assert health["sim"] is Health.STOPPED
    verbs.lift(Change(who="bob"), "sim")
    assert isinstance(world.ask("sim"), Assignment)
    assert verbs.stop_state("sim") == StopView(in_force=False)


def test_the_release_of_a_device_ends_its_hold_only_until_the_stop_is_lifted(world: World) -> None:
    world.start()
    world.run(truth)
    verbs = Operations(world.loop)
    verbs.stop_all(STOP, "sim")
    assert isinstance(holding(world), Release)
    ended = HoldReport(
        device="sim", study="s1", revision=1, setting=setting(600), ended="released by ann"
    )
    assert world.loop.hold_reports.observe(ended).result == "late"
    verbs.lift(STOP, "sim")
    assert isinstance(world.ask(), HoldOrder)
    with raised(NotFound, "elsewhere"):
        verbs.stop_all(STOP, "elsewhere")
