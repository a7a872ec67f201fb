"""A destination gets each event once and in order, despite failures in between."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import START, Time, applied
from tests.processes import until
from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tuner.config import Subject
from tuner.core import Delivery, Event, LinkError, StoreError
from tuner.service.clock.schedule import Maintenance
from tuner.service.notices.courier import GIVE_UP, MOST_S, Courier
from tuner.service.notices.notifications import Notification, about
from tuner.study.loop import Loop
from tuner.wire import Change, HoldOrder, HoldReport, Poll

ALL = frozenset(Subject)


class Receiver:
    """Accepts events while it is up. With `deaf` it accepts them, but its answers are lost."""

    def __init__(self) -> None:
        self.up, self.deaf = True, False
        self.wrong: type[Exception] = LinkError
        self.taken: list[str] = []
        self.asked = 0

    def send(self, notification: Notification) -> None:
        self.asked += 1
        if not self.up:
            raise self.wrong("down")
        self.taken.append(notification.event.text)
        if self.deaf:
            raise LinkError("the answer was lost")


class Desk:
    """A store, a receiver, and a courier between them, on a clock that the test advances."""

    def __init__(self) -> None:
        self.time, self.store, self.receiver = Time(), memory_store(), Receiver()
        self.courier = self.started()
        self.courier.take_up()

    def started(self, on: frozenset[str] = ALL, name: str = "slack") -> Courier:
        return Courier(
            self.store,
            name,
            on,
            self.receiver,
            now=self.time.now,
            rng=random.Random(0),
            tuner="t",
        )

    def note(self, text: str, kind: str = "drift") -> None:
        self.store.events.add(Event(at=self.time.now(), kind=kind, text=text))

    def passes(self, seconds: float) -> None:
        """Advance the time; the courier works whenever it is due."""
        end = self.time.now() + timedelta(seconds=seconds)
        while True:
            again_s = self.courier.deliver()
            if again_s is None or self.time.now() + timedelta(seconds=again_s) > end:
                self.time.at = end
                return
            self.time.at += timedelta(seconds=again_s)


def test_a_new_destination_gets_events_from_then_on() -> None:
    desk = Desk()
    desk.note("x")
    later = desk.started(name="later")
    later.take_up()
    desk.note("y")
    assert later.deliver() is None
    assert desk.receiver.taken == ["y"]
    desk.passes(1.0)
    assert desk.receiver.taken == ["y", "x", "y"]


def test_only_requested_events_are_sent() -> None:
    desk = Desk()
    desk.courier = desk.started(frozenset({"stop", "violation"}))
    desk.note("a", "drift")
    desk.note("b", "stop-all")
    desk.note("c broke in 2 windows in a row", "hold ended")
    desk.note("d: the tuner released the device", "hold ended")
    desk.note("e", "token")
    desk.passes(1.0)
    assert [text[0] for text in desk.receiver.taken] == ["b", "c"]
    state = desk.store.deliveries.get("slack")
    assert state == Delivery("slack", desk.store.events.newest()), "the rest is done with"


@pytest.mark.promise(
    "a webhook is down, or a stream client stops reading",
    "each event is delivered once, in order, when the receiver is back; slow clients "
    "use bounded memory, are dropped and catch up",
)
def test_a_receiver_that_is_down_for_an_hour_misses_nothing_and_gets_nothing_twice() -> None:
    desk = Desk()
    desk.receiver.up = False
    for n in range(60):
        desk.note(str(n))
        desk.passes(60.0)
    assert desk.receiver.taken == []
    assert desk.receiver.asked <= 30, "it is asked less and less often"
    desk.receiver.up = True
    desk.passes(MOST_S)
    assert desk.receiver.taken == [str(n) for n in range(60)]
    desk.passes(3600.0)
    assert len(desk.receiver.taken) == 60


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["note", "other", "up", "down", "broken", "restart"]),
            st.floats(0.0, 900.0),
        ),
        max_size=40,
    )
)
def test_each_event_is_delivered_once_in_order_despite_failures(
    steps: list[tuple[str, float]],
) -> None:
    desk, expected = Desk(), list[str]()
    for n, (what, seconds) in enumerate(steps):
        if what == "note":
            expected.append(str(n))
            desk.note(str(n))
        elif what == "other":
            desk.note(str(n), "registered")
        elif what == "restart":
            desk.courier = desk.started()
        else:
            desk.receiver.up = what == "up"
            desk.receiver.wrong = LinkError if what == "down" else ValueError
        desk.passes(seconds)
    desk.receiver.up = True
    desk.passes(2.0 * MOST_S)
    assert desk.receiver.taken == expected


def test_an_accepted_but_unrecorded_event_is_sent_again_with_the_same_id() -> None:
    desk, ids = Desk(), list[str]()
    desk.note("x")
    sent = desk.receiver.send

    def killed(notification: Notification) -> None:
        ids.append(notification.id)
        sent(notification)
        if len(ids) == 1:
            raise KeyboardInterrupt  # like a kill between the answer and its record

    desk.receiver.send = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        desk.courier.deliver()
    desk.courier = desk.started()
    desk.passes(1.0)
    assert ids == ["t/1", "t/1"]


def test_an_event_refused_for_a_week_is_dropped_and_the_next_sent() -> None:
    desk = Desk()
    desk.receiver.up = False
    desk.note("old")
    desk.passes(GIVE_UP.total_seconds() - 3600.0)
    desk.note("new")
    desk.passes(3600.0 + 2.0 * MOST_S)
    desk.receiver.up = True
    desk.passes(2.0 * MOST_S)
    assert desk.receiver.taken == ["new"]
    state = desk.store.deliveries.get("slack")
    assert state is not None and (state.given_up, state.attempts) == (1, 0)


def test_a_clock_that_is_ahead_for_an_hour_drops_no_event() -> None:
    desk = Desk()
    desk.receiver.up = False
    for n in range(3):
        desk.note(str(n))
    desk.time.step(GIVE_UP + timedelta(days=1))
    desk.passes(3600.0)
    desk.time.step(-GIVE_UP - timedelta(days=1))
    desk.receiver.up = True
    desk.passes(2.0 * MOST_S)
    assert desk.receiver.taken == ["0", "1", "2"]


def test_undelivered_events_are_not_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    maintenance = Maintenance(Loop(desk.store, lambda _: pytest.fail(), desk.time.now), keep_days=1)
    desk.note("told")
    desk.passes(1.0)
    desk.receiver.up = False
    desk.note("untold")
    desk.passes(3 * 86_400.0)
    desk.note("newest")
    for _ in range(3):
        maintenance.prune()
    assert [e.text for e in desk.store.events.list() if e.kind == "drift"] == ["untold", "newest"]


@pytest.mark.parametrize("wrong", [StoreError, ValueError])
def test_no_error_ends_the_delivery_in_the_background(
    wrong: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, failed = Desk(), list[str]()
    after = desk.store.events.after

    def away(*given: object) -> object:
        if not failed:
            failed.append("once")
            raise wrong("away")
        return after(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(desk.store.events, "after", away)
    monkeypatch.setattr("tuner.service.notices.courier.AGAIN_S", 0.01)
    for n in range(5):
        desk.note(str(n))
    end = desk.courier.begin()
    until(lambda: len(desk.receiver.taken) == 5)
    end()
    assert desk.receiver.taken == [str(n) for n in range(5)]


@pytest.mark.parametrize("kind", ["proposed", "withdrawn"])
def test_a_proposal_is_a_separate_subject(kind: str) -> None:
    meaning = about(Event(at=START, kind=kind, text="gpu.clock_mhz=600", study="s1"))
    assert meaning is not None and meaning.subject is Subject.PROPOSED


def test_a_paused_hold_is_one_message_that_names_its_devices() -> None:
    verbs, study = worlds.held()
    hold = verbs.loop.order("sim", Poll(agent="host", applied=applied("sim")))
    assert isinstance(hold, HoldOrder)
    sent: list[Notification] = []

    class Mailbox:
        def send(self, notification: Notification) -> None:
            sent.append(notification)

    courier = Courier(
        verbs.loop.store, "mail", ALL, Mailbox(), now=verbs.loop.now, rng=random.Random(0),
        tuner="t", base_url="https://t.test/",
    )  # fmt: skip
    courier.take_up()
    verbs.pause(study, Change(who="ann", why="lunch"))
    held = hold.plan.rows[0].setting
    end = HoldReport.of(hold, device="sim", setting=held, ended=f"study {study} is paused")
    assert verbs.loop.hold_reports.observe(end).result == "late"
    assert courier.deliver() is None
    (only,) = sent
    assert only.title == f"paused: sim, study {study} (t)"
    assert only.link == f"https://t.test/studies/{study}"
    kinds = [event.kind for event in verbs.events(study)][-2:]
    assert kinds == ["paused", "released"]
