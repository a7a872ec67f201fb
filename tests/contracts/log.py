"""What every store of observations and events keeps to."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.builders import START, setting, study, window
from tests.contracts.threads import together
from tests.contracts.trials import rich_measurement
from tuner.core import Event, MetricSample, NotFound, Observation, Setting, Store, setting_key

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


class ObservationsContract:
    @pytest.fixture(autouse=True)
    def _studies(self, store: Store) -> None:
        for name in ("s1", "s2"):
            store.studies.add(study(id=name, devices=(name,)), "ann", "")

    def test_an_observation_comes_back_as_it_was_kept(self, store: Store) -> None:
        kept = replace(observation(), measurement=rich_measurement(), setting={"on": True, "n": 1})
        store.observations.add(kept)
        assert store.observations.list("s1") == (kept,)
        assert [type(v) for v in store.observations.list("s1")[0].setting.values()] == [bool, int]

    def test_the_same_window_is_kept_once(self, store: Store) -> None:
        store.observations.add(observation())
        store.observations.add(replace(observation(), at=START + timedelta(hours=1)))
        assert store.observations.list("s1") == (observation(),)

    def test_the_same_window_sent_at_once_is_kept_once(self, store: Store) -> None:
        together(lambda _: store.observations.add(observation()))
        assert store.observations.list("s1") == (observation(),)

    def test_another_device_or_study_is_another_window(self, store: Store) -> None:
        store.observations.add(observation())
        store.observations.add(observation(device="b"))
        store.observations.add(observation(study="s2"))
        assert [o.device for o in store.observations.list("s1")] == ["sim", "b"]
        assert len(store.observations.list("s2")) == 1

    def test_the_last_ones_are_told_oldest_first(self, store: Store) -> None:
        for minute in (2, 0, 3, 1):
            store.observations.add(observation(minute))
        told = [[o.at.minute for o in store.observations.list("s1", n)] for n in (None, 2, 9, 0)]
        assert told == [[0, 1, 2, 3], [2, 3], [0, 1, 2, 3], []]

    def test_what_windows_show_of_one_metric_is_told_by_their_start(self, store: Store) -> None:
        mixed: Setting = {"on": True, "n": 1, "ratio": 0.5, "name": "größe"}
        kept = replace(observation(), measurement=rich_measurement(), setting=mixed)
        store.observations.add(kept)
        assert store.observations.samples("s1", "power_w", EARLY) == (
            MetricSample(
                started_at=kept.measurement.started_at,
                seconds=0.1,
                setting=setting_key(mixed),
                context={"arrival_rate_per_s": 99.5, "decoding_requests": 0.1},
                completed=2**40,
                mean=1 / 3,
                stderr=0.1,
            ),
        )

    def test_only_windows_that_show_the_metric_are_told(self, store: Store) -> None:
        for number in (2, 0, 3, 1):
            at_once = replace(observation(number), at=START + timedelta(hours=1))
            store.observations.add(at_once)
        store.observations.add(observation(study="s2"))

        def told(since: datetime, last: int | None = None, metric: str = "energy_j") -> list[int]:
            shown = store.observations.samples("s1", metric, since, last)
            return [round((g.started_at - EARLY) / timedelta(minutes=1)) for g in shown]

        assert told(EARLY) == [0, 1, 2, 3]
        assert told(EARLY + timedelta(minutes=1)) == [1, 2, 3]
        assert told(EARLY, last=2) == [2, 3]
        assert told(EARLY, last=0) == []
        assert told(EARLY, metric="cpu_time_ms") == []

    def test_an_unknown_study_has_none_and_gets_none(self, store: Store) -> None:
        with pytest.raises(NotFound, match="'nobody'"):
            store.observations.add(observation(study="nobody"))
        assert store.observations.list("nobody") == ()
        assert store.observations.samples("nobody", "energy_j", EARLY) == ()

    def test_pruning_deletes_what_is_older(self, store: Store) -> None:
        for minute in range(4):
            store.observations.add(observation(minute))
        assert store.observations.prune(START + timedelta(minutes=2)) == 2
        assert [o.at.minute for o in store.observations.list("s1")] == [2, 3]
        assert store.observations.oldest() == START + timedelta(minutes=2)
        assert store.observations.prune(START + timedelta(minutes=9)) == 2
        assert store.observations.oldest() is None
        assert store.observations.prune(START) == 0


class EventsContract:
    def test_events_are_told_oldest_first(self, store: Store) -> None:
        for minute in (1, 0, 2):
            store.events.add(event(minute))
        assert store.events.list() == (event(0), event(1), event(2))
        assert store.events.list(last=2) == (event(1), event(2))
        assert store.events.list(last=0) == ()

    def test_events_of_one_moment_are_told_as_they_came(self, store: Store) -> None:
        for name in ("b", "a", "c"):
            store.events.add(event(0, study=name))
        assert [e.study for e in store.events.list()] == ["b", "a", "c"]
        assert [e.study for e in store.events.list(last=2)] == ["a", "c"]

    def test_events_of_one_study_or_device(self, store: Store) -> None:
        kept = [event(0, "s1", "a"), event(1, "s1", "b"), event(2, "s2", "a"), event(3)]
        for one in kept:
            store.events.add(one)
        assert list(store.events.list("s1")) == kept[:2]
        assert list(store.events.list(device="a")) == [kept[0], kept[2]]
        assert list(store.events.list("s1", "a")) == [kept[0]]
        assert list(store.events.list("s1", last=1)) == [kept[1]]

    def test_pruning_deletes_what_is_older(self, store: Store) -> None:
        for minute in range(4):
            store.events.add(event(minute))
        assert store.events.prune(START + timedelta(minutes=3)) == 3
        assert store.events.list() == (event(3),)
        assert store.events.oldest() == START + timedelta(minutes=3)
        assert store.events.prune(START + timedelta(minutes=9)) == 1
        assert store.events.oldest() is None
