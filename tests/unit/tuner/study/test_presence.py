"""Online devices: timed by the tuner's own clock, and visible to other tuners without a write per poll."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from db import Store
from db.sql.devices import Devices
from tests.builders import START, Time, applied, device, policies, setting, study, window
from tests.errors import raised
from tests.stores import memory_store
from tuner.core import Conflict, DeviceBusy, NotFound, Outcome, Phase, Plan, Space, TrialState
from tuner.presentation.standing import device_status, standing
from tuner.service.clock.schedule import Maintenance, expect
from tuner.service.fleet import FleetOverview
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.study.loop import Loop
from tuner.study.presence import KEEP_S, MOST_AGAIN_S
from tuner.wire import (
    LONGEST_POLL_S,
    ONLY_OBSERVED,
    Assignment,
    Change,
    HoldOrder,
    Poll,
    Renewal,
)


@dataclass
class Office:
    """A tuner with two clocks that the test sets, and a device that polls."""

    wall: Time = field(default_factory=Time)
    boot: Time = field(default_factory=Time)
    store: Store = field(default_factory=memory_store)

    def __post_init__(self) -> None:
        self.loop = self.another()
        self.verbs = Operations(self.loop)
        self.loop.register(device())

    def another(self) -> Loop:
        return Loop(self.store, policies, self.wall.now, monotonic=self.boot.monotonic)

    def passes(self, seconds: float) -> None:
        self.wall.at += timedelta(seconds=seconds)
        self.boot.at += timedelta(seconds=seconds)

    def poll(self, unable: str = "") -> object:
        return self.loop.order("sim", Poll(agent="host/1", applied=applied(), unable=unable))

    def waits(self) -> None:
        self.poll()
        self.loop.presence.note_contact("sim", LONGEST_POLL_S)

    def online(self, verbs: Operations | None = None) -> bool:
        (view,) = (verbs or self.verbs).devices()
        return view.online


@pytest.fixture
def office() -> Office:
    return Office()


def test_a_device_silent_for_a_lease_is_offline(office: Office) -> None:
    office.passes(100.0)
    office.poll()
    office.passes(office.loop.lease_s)
    assert office.online()
    office.passes(0.1)
    assert not office.online()
    assert office.verbs.devices()[0].last_seen == START + timedelta(seconds=100)
    office.poll()
    assert office.online()


def test_why_a_device_takes_no_orders_is_shown_with_it_and_its_study(office: Office) -> None:
    office.store.studies.add(study(Phase.BASELINE), "ann", "created")
    office.poll(unable="put back to stay")
    assert office.verbs.devices()[0].unable == "put back to stay"
    assert office.verbs.studies()[0].unable == "sim: put back to stay"
    assert standing(office.verbs.studies()[0]).endswith(
        "ACCEPTS NO ASSIGNMENTS: sim: put back to stay"
    )
    office.poll()
    assert office.verbs.devices()[0].unable == office.verbs.studies()[0].unable == ""


def test_an_observed_device_that_is_not_measured_is_shown_so_with_the_reason(
    office: Office,
) -> None:
    office.loop.register(device(space=Space(()), observed=True))
    fleet = FleetOverview(office.verbs, Summaries(office.verbs))

    def shown() -> tuple[str, str, str]:
        (view,), (row,) = office.verbs.devices(), fleet.view().rows
        assert view.unable == row.unable
        return device_status(view), str(row.health), view.unable

    office.poll(unable=ONLY_OBSERVED)
    assert shown() == ("observed", "observed", "")
    office.poll(unable="not measured since noon: the counter is gone")
    assert shown() == (
        "not measured",
        "not measured",
        "not measured since noon: the counter is gone",
    )
    office.poll(unable=ONLY_OBSERVED)
    assert shown() == ("observed", "observed", "")
    office.poll(unable=ONLY_OBSERVED)
    texts = [event.text for event in office.store.events.list()]
    assert texts.count("the device is measured again") == 1


def test_a_trial_that_is_renewed_keeps_its_device_online(office: Office) -> None:
    office.store.studies.add(study(Phase.BASELINE), "ann", "created")
    order = office.poll()
    assert isinstance(order, Assignment)
    for _ in range(5):
        office.passes(office.loop.lease_s)
        office.loop.renew(Renewal(device="sim", token=order.token, nonce=order.nonce))
    assert office.online()
    assert office.verbs.studies()[0].offline == ()


@pytest.mark.promise("the tuner's clock steps, or its host is suspended")
def test_a_step_of_the_wall_clock_makes_no_device_offline(office: Office) -> None:
    office.poll()
    office.wall.at += timedelta(days=365)
    assert office.online()


def test_a_holding_agent_may_be_silent_for_a_window(office: Office) -> None:
    held = study(Phase.HOLDING, plan=Plan.single(setting(600)))
    office.store.studies.add(held, "ann", "created")
    office.poll()
    office.passes(office.loop.lease_s + held.terms.window_s)
    assert office.verbs.study("s1").offline == ()
    office.passes(1.0)
    assert office.verbs.study("s1").offline == ("sim",)


def test_a_holding_agent_may_be_silent_for_its_longer_windows(office: Office) -> None:
    held = study(Phase.HOLDING, plan=Plan.single(setting(600)))
    office.store.studies.add(held, "ann", "created")
    trials, rare = office.store.trials, window(rate=0.05, seconds=60.0)
    begun = trials.begin(held.id, setting(600), Phase.CONFIRMING, "", START)
    ended = Outcome(state=TrialState.COMPLETED, measurement=rare)
    trials.end(held.id, begun.number, ended, START)
    order = office.poll()
    assert isinstance(order, HoldOrder) and order.window_s > held.terms.window_s
    office.passes(office.loop.lease_s + order.window_s)
    assert office.verbs.study("s1").offline == ()
    assert office.loop.presence.turned(office.store.studies.windows_s) == []
    office.passes(1.0)
    assert office.verbs.study("s1").offline == ("sim",)
    assert office.loop.presence.turned(office.store.studies.windows_s) == [("sim", False)]


def test_a_stopped_study_misses_no_device(office: Office) -> None:
    office.store.studies.add(study(), "ann", "created")
    office.passes(3600.0)
    assert office.verbs.study("s1").offline == ("sim",)
    office.verbs.stop("s1", Change())
    assert office.verbs.study("s1").offline == ()


def test_another_process_knows_stored_contacts_and_polls_store_nothing(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Operations(office.another())
    with monkeypatch.context() as patched:
        patched.delattr(Devices, "seen")
        patched.delattr(Devices, "put")
        for _ in range(150):
            office.passes(1.0)
            office.poll()
    assert not office.online(beside), "nothing was stored so far"
    Maintenance(office.loop, keep_days=1).keep_seen()
    assert office.online(beside)
    office.passes(office.loop.lease_s + KEEP_S + LONGEST_POLL_S)
    assert office.online(beside), "the next word may not be stored yet"
    office.passes(1.0)
    assert not office.online(beside)


def test_a_waiting_agent_is_online_until_it_disconnects(office: Office) -> None:
    office.waits()
    office.passes(60.0 + office.loop.lease_s)
    assert office.online(), "it waited for a minute, and silence counts from there"
    office.passes(1.0)
    assert not office.online()
    office.waits()
    office.poll()
    office.passes(office.loop.lease_s + 1.0)
    assert not office.online(), "it was answered, and has said nothing since"
    office.waits()
    office.loop.presence.note_contact("sim")
    office.passes(office.loop.lease_s + 1.0)
    assert not office.online()


def test_only_offline_devices_without_a_study_can_be_forgotten(office: Office) -> None:
    with raised(Conflict, "online"):
        office.verbs.forget("sim", Change())
    office.store.studies.add(study(), "ann", "created")
    office.passes(3600.0)
    with pytest.raises(DeviceBusy):
        office.verbs.forget("sim", Change())
    office.verbs.stop("s1", Change())
    office.verbs.forget("sim", Change(who="ann"))
    assert office.verbs.devices() == []
    assert office.verbs.events(device="sim", last=1)[0].text == "forgotten by ann"
    with pytest.raises(NotFound):
        office.poll()
    office.loop.register(device())
    assert office.online(), "an agent that comes back registers it anew"


def test_a_device_that_falls_silent_and_comes_back_is_noted_once_each(office: Office) -> None:
    maintenance = Maintenance(office.loop, keep_days=1)

    def noted() -> list[str]:
        maintenance.watch_silence()
        kinds = [e.kind for e in office.verbs.events(device="sim")]
        return [kind for kind in kinds if kind in ("offline", "online")]

    office.waits()
    office.passes(60.0 + office.loop.lease_s)
    assert noted() == []
    office.passes(1.0)
    assert noted() == noted() == ["offline"]
    office.poll()
    assert noted() == noted() == ["offline", "online"]


def test_devices_silent_because_of_refused_agents_are_not_noted(office: Office) -> None:
    maintenance = Maintenance(office.loop, keep_days=1)
    office.poll()
    office.loop.presence.sent_away()
    office.passes(2.0 * MOST_AGAIN_S)
    maintenance.watch_silence()
    assert not [e for e in office.verbs.events(device="sim") if e.kind == "offline"]
    office.passes(office.loop.lease_s + 1.0)
    maintenance.watch_silence()
    assert [e.kind for e in office.verbs.events(device="sim", last=1)] == ["offline"]


def test_a_tuner_that_starts_waits_for_the_devices_there_were_and_repeats_nothing(
    office: Office,
) -> None:
    office.loop.register(device("other"))
    before = Maintenance(office.loop, keep_days=1)
    office.passes(3600.0)
    before.watch_silence()
    office.loop.register(device("third"))
    again = Maintenance(office.another(), keep_days=1)
    expect(again.loop)
    again.watch_silence()
    office.passes(LONGEST_POLL_S + again.loop.lease_s + 1.0)
    again.watch_silence()
    again.watch_silence()
    silent = [e.device for e in office.store.events.list() if e.kind == "offline"]
    assert sorted(silent[:2]) == ["other", "sim"] and silent[2:] == ["third"]


@pytest.fixture
def beside(office: Office) -> Loop:
    """Another tuner on the same memory."""
    return office.another()


def polls(loop: Loop, unable: str = "", name: str = "sim") -> object:
    return loop.order(name, Poll(agent="host/1", applied=applied(name), unable=unable))


def test_a_device_polling_one_tuner_is_online_at_all(office: Office, beside: Loop) -> None:
    office.poll()
    for _ in range(10):
        office.passes(60.0)
        polls(beside)
        beside.presence.keep()
    assert office.online() and office.online(Operations(beside))
    assert office.verbs.devices()[0].last_seen == office.wall.now()


def test_the_leader_notes_silent_devices_of_other_tuners(office: Office, beside: Loop) -> None:
    maintenance = Maintenance(office.loop, keep_days=1)
    expect(office.loop)
    beside.register(device("other"))
    polls(beside, name="other")
    beside.presence.keep()

    def noted() -> list[str]:
        maintenance.watch_silence()
        events = office.store.events.list(device="other")
        return [e.kind for e in events if e.kind in ("offline", "online")]

    assert noted() == []
    office.passes(office.loop.lease_s + KEEP_S + LONGEST_POLL_S + 1.0)
    assert noted() == noted() == ["offline"]
    polls(beside, name="other")
    beside.presence.keep()
    assert noted() == noted() == ["offline", "online"]


def test_a_devices_refusal_at_one_tuner_reaches_all_tuners(office: Office, beside: Loop) -> None:
    both = device(), device("other")
    office.loop.register(both[1])
    office.store.studies.add(study(Phase.BASELINE, devices=("sim", "other")), "ann", "created")
    polls(beside, "its driver is gone", "other")
    waits = polls(office.loop)
    assert getattr(waits, "why", "") == "other: its driver is gone"
    assert office.store.trials.count("s1") == 0
    polls(beside, "", "other")
    assert isinstance(polls(office.loop), Assignment)
