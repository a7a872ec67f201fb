"""The contract of every store of observations and events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from db import Store, open_store
from tests.builders import START, completed, device, setting, study, window
from tests.contracts.threads import together
from tests.contracts.trials import rich_measurement
from tests.errors import raised
from tests.processes import until
from tuner.core import (
    AuditEntry,
    Delivery,
    Event,
    Limit,
    MetricSample,
    NotFound,
    Notice,
    Observation,
    Phase,
    Setting,
    Space,
    Topic,
    setting_key,
)

EARLY = START - timedelta(seconds=10)
"""When the window of minute 0 began."""


def observation(minute: int = 0, study: str = "s1", device: str = "sim") -> Observation:
    at = START + timedelta(minutes=minute)
    return Observation(
        study=study,
        device=device,
        setting=setting(),
        measurement=replace(window(), started_at=at - timedelta(seconds=10)),
        at=at,
    )


def event(minute: int = 0, study: str = "", device: str = "") -> Event:
    at = START + timedelta(minutes=minute)
    return Event(at=at, kind="drift", text=f"minute {minute}", study=study, device=device)


def entry(minute: int = 0, who: str = "ann") -> AuditEntry:
    return AuditEntry(
        at=START + timedelta(minutes=minute),
        who=who,
        role="operator",
        address="10.0.0.7",
        method="POST",
        path="/v1/stop",
        status=200,
    )


class ObservationsContract:
    @pytest.fixture(autouse=True)
    def _studies(self, store: Store) -> None:
        for name in ("s1", "s2"):
            store.studies.add(study(id=name, devices=(name,)), "ann", "")

    def test_an_observation_comes_back_as_it_was_kept(self, store: Store) -> None:
        kept = replace(observation(), measurement=rich_measurement(), setting={"on": True, "n": 1})
        kept = replace(kept, speaks_s=1 / 3)
        store.observations.add_all([kept])
        assert store.observations.list("s1") == (kept,)
        assert [type(v) for v in store.observations.list("s1")[0].setting.values()] == [bool, int]

    def test_the_same_window_is_kept_once(self, store: Store) -> None:
        assert store.observations.add_all([observation()]) == [True]
        again = replace(observation(), at=START + timedelta(hours=1))
        assert store.observations.add_all([again]) == [False]
        assert store.observations.list("s1") == (observation(),)

    def test_the_same_window_sent_at_once_is_kept_once(self, store: Store) -> None:
        together(lambda _: store.observations.add_all([observation()]))
        assert store.observations.list("s1") == (observation(),)

    def test_several_are_stored_at_once_and_each_is_reported_as_new_or_not(
        self, store: Store
    ) -> None:
        store.observations.add_all([observation(1)])
        wanted = [observation(0), observation(1), observation(study="s2"), observation(0)]
        assert store.observations.add_all(wanted) == [True, False, True, False]
        assert store.observations.list("s1") == (observation(0), observation(1))
        assert store.observations.list("s2") == (observation(study="s2"),)

    def test_a_batch_with_an_unknown_study_stores_nothing(self, store: Store) -> None:
        with raised(NotFound, "gone"):
            store.observations.add_all([observation(0), observation(study="gone")])
        assert store.observations.list("s1") == ()

    def test_values_of_several_windows_stay_separate(self, store: Store) -> None:
        rich = replace(observation(1), measurement=rich_measurement())
        store.observations.add_all([observation(0), rich, observation(2)])
        assert store.observations.list("s1") == (observation(0), rich, observation(2))

    def test_another_device_or_study_is_another_window(self, store: Store) -> None:
        store.observations.add_all([observation()])
        store.observations.add_all([observation(device="b")])
        store.observations.add_all([observation(study="s2")])
        assert [o.device for o in store.observations.list("s1")] == ["sim", "b"]
        assert len(store.observations.list("s2")) == 1

    def test_the_last_ones_are_listed_oldest_first(self, store: Store) -> None:
        for minute in (2, 0, 3, 1):
            store.observations.add_all([observation(minute)])
        minutes = [[o.at.minute for o in store.observations.list("s1", n)] for n in (None, 2, 9, 0)]
        assert minutes == [[0, 1, 2, 3], [2, 3], [0, 1, 2, 3], []]

    def test_samples_of_one_metric_are_listed_by_start(self, store: Store) -> None:
        mixed: Setting = {"on": True, "n": 1, "ratio": 0.5, "name": "größe"}
        kept = replace(observation(), measurement=rich_measurement(), setting=mixed, speaks_s=0.0)
        store.observations.add_all([kept])
        assert store.observations.samples("s1", "power_w", EARLY) == (
            MetricSample(
                started_at=kept.measurement.started_at,
                seconds=0.1,
                setting=setting_key(mixed),
                context={"arrival_rate_per_s": 99.5, "decoding_requests": 0.1},
                completed=2**40,
                mean=1 / 3,
                stderr=0.1,
                speaks_s=0.0,
            ),
        )

    def test_the_last_windows_of_each_device_come_with_those_of_the_last_trials(
        self, store: Store
    ) -> None:
        for minute in range(4):
            store.observations.add_all([observation(minute), observation(minute, "s2", "s2")])
        last = START + timedelta(minutes=9)
        trial = store.trials.begin("s1", setting(), Phase.TUNING, "", last, device="sim")
        store.trials.end("s1", trial.number, completed(7.0, 70.0), last)
        names = ["latency_p99_ms", "power_w"]
        points = store.observations.recent(["s1"], names, START, 2)
        assert {(p.study, p.device) for p in points} == {("s1", "sim")}
        (latency,) = (p.points for p in points if p.metric == "latency_p99_ms")
        held = observation(3).measurement.started_at
        assert latency == ((held.timestamp(), 100.0), (last.timestamp(), 70.0))
        assert store.observations.recent([], names, START, 2) == ()
        assert store.observations.recent(["s1"], [], START, 2) == ()

    def test_windows_without_a_study_belong_to_an_observed_device(self, store: Store) -> None:
        store.devices.put(device("alone", space=Space(()), observed=True))
        assert store.devices.get("alone").observed
        for minute in range(4):
            own = replace(observation(minute, "", "alone"), setting={})
            assert store.observations.add_all([own, observation(minute)]) == [True, True]
            assert store.observations.add_all([own]) == [False]
        windows = store.observations.observed("alone", START + timedelta(minutes=1), 2)
        sent = [observation(minute, "", "alone").measurement for minute in (2, 3)]
        assert list(windows) == sent  # with their unbounded sides
        names = ["latency_p99_ms", "unknown"]
        (course,) = store.observations.recent([], names, START, 3, ["alone"])
        assert (course.study, course.device, len(course.points)) == ("", "alone", 3)
        points = store.observations.course("alone", [], names, START, 120.0)
        assert [(p.metric, p.mean) for p in points] == [("latency_p99_ms", 100.0)] * len(points)
        assert len(points) in (2, 3)
        gone = replace(observation(9, "", "gone"), setting={})
        with raised(NotFound, "gone"):
            store.observations.add_all([gone, observation(9)])
        assert store.observations.prune(START + timedelta(minutes=2)) > 2
        store.devices.forget("alone")
        assert store.observations.observed("alone", START, 9) == []

    def test_trials_before_the_given_time_are_not_among_the_last_windows(
        self, store: Store
    ) -> None:
        for at in (START, START + timedelta(minutes=1)):
            trial = store.trials.begin("s1", setting(), Phase.TUNING, "", at)
            store.trials.end("s1", trial.number, completed(7.0, at.minute + 70.0), at)
        since = START + timedelta(minutes=1)
        (course,) = store.observations.recent(["s1"], ["latency_p99_ms"], since, 9)
        assert (course.device, course.points) == ("", ((since.timestamp(), 71.0),))

    def test_a_course_merges_the_windows_of_a_step_of_time(self, store: Store) -> None:
        for minute, latency in enumerate((90.0, 110.0, 100.0, 130.0)):
            kept = observation(minute)
            shown = replace(window(latency_p99_ms=latency), started_at=kept.measurement.started_at)
            store.observations.add_all([replace(kept, measurement=shown)])
        names = ["latency_p99_ms"]
        points = store.observations.course("sim", ["s1"], names, EARLY, 172_800.0)
        assert [(p.mean, p.least, p.most) for p in points] == [(107.5, 90.0, 130.0)]
        fine = store.observations.course("sim", ["s1"], names, START, 1.0)
        assert [p.mean for p in fine] == [110.0, 100.0, 130.0]
        assert store.observations.course("other", ["s1"], names, EARLY, 60.0) == ()

    def test_only_windows_with_the_metric_are_returned(self, store: Store) -> None:
        for number in (2, 0, 3, 1):
            at_once = replace(observation(number), at=START + timedelta(hours=1))
            store.observations.add_all([at_once])
        store.observations.add_all([observation(study="s2")])

        def told(since: datetime, last: int | None = None, metric: str = "energy_j") -> list[int]:
            shown = store.observations.samples("s1", metric, since, last)
            return [round((g.started_at - EARLY) / timedelta(minutes=1)) for g in shown]

        assert told(EARLY) == [0, 1, 2, 3]
        assert told(EARLY + timedelta(minutes=1)) == [1, 2, 3]
        assert told(EARLY, last=2) == [2, 3]
        assert told(EARLY, last=0) == []
        assert told(EARLY, metric="cpu_time_ms") == []

    def test_windows_that_prove_a_limit_broken_are_counted_once_each(self, store: Store) -> None:
        for number in range(3):
            store.observations.add_all([observation(number)])
        energy, latency = Limit("energy_j", "<=", 1e-3), Limit("latency_p99_ms", "<=", 1e-3)
        kept = Limit("energy_j", "<=", 1e6)
        assert store.observations.broken("s1", (energy, latency)) == 3
        assert store.observations.broken("s1", (Limit("energy_j", ">=", 1e6), kept)) == 3
        assert store.observations.broken("s1", (kept,)) == 0
        assert store.observations.broken("s1", ()) == 0
        assert store.observations.broken("s2", (energy,)) == 0

    def test_an_unknown_study_has_none_and_gets_none(self, store: Store) -> None:
        with raised(NotFound, "nobody"):
            store.observations.add_all([observation(study="nobody")])
        assert store.observations.list("nobody") == ()
        assert store.observations.samples("nobody", "energy_j", EARLY) == ()

    def test_pruning_deletes_older_rows(self, store: Store) -> None:
        for minute in range(4):
            store.observations.add_all([observation(minute)])
        assert store.observations.prune(START + timedelta(minutes=2)) == 2
        assert [o.at.minute for o in store.observations.list("s1")] == [2, 3]
        assert store.observations.oldest() == START + timedelta(minutes=2)
        assert store.observations.prune(START + timedelta(minutes=9)) == 2
        assert store.observations.oldest() is None
        assert store.observations.prune(START) == 0


class EventsContract:
    def test_events_are_listed_oldest_first(self, store: Store) -> None:
        for minute in (1, 0, 2):
            store.events.add(event(minute))
        assert store.events.list() == (event(0), event(1), event(2))
        assert store.events.list(last=2) == (event(1), event(2))
        assert store.events.list(last=0) == ()

    def test_events_of_one_moment_keep_their_order(self, store: Store) -> None:
        for name in ("b", "a", "c"):
            store.events.add(event(0, study=name))
        assert [e.study for e in store.events.list()] == ["b", "a", "c"]
        assert [e.study for e in store.events.list(last=2)] == ["a", "c"]

    def test_events_stored_together_are_announced_in_their_order(self, store: Store) -> None:
        assert store.events.add_all([]) == ()
        events = (event(0, device="d"), event(0), event(0, study="s"))
        kept = store.events.add_all(events)
        assert kept == events
        assert sorted(e.id for e in kept) == [e.id for e in kept]
        assert store.events.list() == events
        assert [e.id for e in store.events.after(0, None)] == [e.id for e in kept]

    def test_events_of_one_study_or_device(self, store: Store) -> None:
        kept = [event(0, "s1", "a"), event(1, "s1", "b"), event(2, "s2", "a"), event(3)]
        for one in kept:
            store.events.add(one)
        assert list(store.events.list("s1")) == kept[:2]
        assert list(store.events.list(device="a")) == [kept[0], kept[2]]
        assert list(store.events.list("s1", "a")) == [kept[0]]
        assert list(store.events.list("s1", last=1)) == [kept[1]]

    def test_pruning_deletes_older_rows(self, store: Store) -> None:
        for minute in range(4):
            store.events.add(event(minute))
        assert store.events.prune(START + timedelta(minutes=3)) == 3
        assert store.events.list() == (event(3),)
        assert store.events.oldest() == START + timedelta(minutes=3)

    def test_the_newest_stays_so_that_no_id_is_given_twice(self, store: Store) -> None:
        store.events.add(event(0))
        last = store.events.add(event(1))
        assert store.events.prune(START + timedelta(minutes=9)) == 1
        assert store.events.oldest() == last.at
        assert store.events.add(event(2)).id > last.id

    def test_events_after_an_event_are_listed_by_id(self, store: Store) -> None:
        assert store.events.newest() == 0
        kept = [event(3, "s1", "a"), event(1, "s2", "a"), event(2, "s1", "b")]
        first, *others = [store.events.add(one).id for one in kept]
        assert [e.id for e in store.events.after(0, None)] == [first, *others]
        assert list(store.events.after(first, 1)) == [kept[1]]
        assert [e.id for e in store.events.after(first, None, "s1")] == others[1:]
        assert list(store.events.after(0, 5, device="a")) == kept[:2]
        assert store.events.newest() == others[-1]


class BusContract:
    def test_every_subscriber_gets_each_notice(self, store: Store) -> None:
        heard: list[tuple[str, Notice]] = []
        store.bus.subscribe(lambda notice: heard.append(("a", notice)))
        end = store.bus.subscribe(lambda notice: heard.append(("b", notice)))
        orders = Notice(Topic.ORDERS, "s1", ("sim",))
        store.bus.publish(orders)
        assert sorted(heard, key=lambda h: h[0]) == [("a", orders), ("b", orders)]
        end()
        end()
        store.bus.publish(orders)
        assert [who for who, _ in heard].count("b") == 1

    def test_a_stored_event_is_published_once_it_can_be_read(self, store: Store) -> None:
        seen: list[list[Event]] = []

        def read(notice: Notice) -> None:
            if notice == Notice(Topic.EVENTS, "s1", ("a",)):
                seen.append(list(store.events.list()))

        store.bus.subscribe(read)
        store.events.add(event(0, "s1", "a"))
        assert seen == [[event(0, "s1", "a")]]

    def test_a_failing_subscriber_affects_no_other(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(notice: Notice) -> None:
            raise RuntimeError(notice.study)

        heard: list[Notice] = []
        store.bus.subscribe(fail)
        store.bus.subscribe(heard.append)
        assert store.events.add(event(0)).id == store.events.newest()
        assert len(heard) == 1
        assert "event=subscriber_failed" in caplog.text


class SharedBusContract:
    """The contract of notices between processes on one database."""

    @pytest.fixture
    def listening(self, url: str) -> Iterator[Store]:
        opened = open_store(url)
        opened.bus.listen()
        opened.bus.listen()
        yield opened
        opened.close()

    def test_another_process_is_heard_and_oneself_once(
        self, store: Store, listening: Store
    ) -> None:
        heard: list[Notice] = []
        new = threading.Event()

        def hear(notice: Notice) -> None:
            heard.append(notice)
            new.set()

        def until(there: Callable[[], bool]) -> None:
            while not there():
                new.clear()
                assert there() or new.wait(60.0), heard

        listening.bus.subscribe(hear)
        # A process that does not listen yet receives nothing: repeat an event until it is received.
        while Notice(Topic.EVENTS, "first") not in heard:
            store.events.add(event(0, "first"))
            new.wait(0.5)
        listening.events.add(event(0, "own"))
        store.bus.publish(Notice(Topic.ORDERS, "s1", ("sim",)))
        store.events.add(event(1, "s1"))
        topics = (Topic.EVENTS, Topic.ORDERS)
        until(lambda: all(any((n.topic, n.study) == (t, "s1") for n in heard) for t in topics))
        assert [n for n in heard if n.study == "own"] == [Notice(Topic.EVENTS, "own")]

    @pytest.mark.promise("one of several tuners dies or loses PostgreSQL, or PostgreSQL restarts")
    def test_one_tuner_leads_and_another_once_the_first_has_ended(
        self, url: str, listening: Store
    ) -> None:
        stores = [open_store(url) for _ in range(3)]
        for store in stores:
            store.bus.listen(lead=True)
        until(lambda: any(store.bus.leads() for store in stores), "nobody leads")
        for left in (3, 2):
            leading = [store for store in stores if store.bus.leads()]
            assert len(leading) == 1, f"{len(leading)} of {left} lead"
            stores.remove(leading[0])
            leading[0].close()
            assert not listening.bus.leads(), "it only follows"
            until(lambda: any(store.bus.leads() for store in stores), "nobody leads any more")
        stores[0].close()

    def test_a_notice_of_many_devices_arrives_as_one_of_their_study(
        self, store: Store, listening: Store
    ) -> None:
        heard, new = [], threading.Event()

        def hear(notice: Notice) -> None:
            if notice.study == "s1":
                heard.append(notice)
                new.set()

        listening.bus.subscribe(hear)
        many = tuple(f"device-{n:04}" for n in range(2_000))
        for minute in range(60):
            store.bus.publish(Notice(Topic.ORDERS, "s1", many))
            store.events.add(event(minute, "s1"))
            if new.wait(1.0):
                break
        assert heard[0].study == "s1"


class DeliveriesContract:
    def test_a_destination_has_the_position_that_was_stored_last(self, store: Store) -> None:
        assert store.deliveries.get("slack") is None
        behind = Delivery("slack", 3, 2, START + timedelta(minutes=1), "it is away", 1)
        for kept in (Delivery("slack", 3), behind, Delivery("email", 9)):
            store.deliveries.put(kept)
        assert store.deliveries.get("slack") == behind
        assert list(store.deliveries.list()) == [Delivery("email", 9), behind]
        store.deliveries.forget("slack")
        store.deliveries.forget("slack")
        assert list(store.deliveries.list()) == [Delivery("email", 9)]


class AuditContract:
    def test_audit_entries_are_read_as_they_were_stored(self, store: Store) -> None:
        kept = [entry(n, "ann" if n % 2 else "bob") for n in range(4)]
        for one in kept:
            store.audit.add(one)
        assert list(store.audit.list()) == kept
        assert list(store.audit.list(last=2)) == kept[2:]
        assert list(store.audit.list(who="ann")) == kept[1::2]
        assert store.audit.list(last=1, who="carl") == ()
        ids = [e.id for e in store.audit.list()]
        assert ids == sorted(set(ids)) and ids[0] > 0

    def test_pruning_deletes_rows_older_than_requested(self, store: Store) -> None:
        for n in range(3):
            store.audit.add(entry(n))
        assert store.audit.prune(START + timedelta(minutes=2)) == 2
        assert list(store.audit.list()) == [entry(2)]
