"""A tuner's report on itself for the other tuners."""

from __future__ import annotations

from datetime import timedelta

import pytest

from db import Store
from tests.builders import Time, applied, device, policies
from tests.stores import memory_store
from tuner.service.clock.replicas import Roll, mark_of
from tuner.study.loop import Loop
from tuner.wire import Poll


def told_by(store: Store, time: Time, token: str = "one") -> Roll:
    loop = Loop(store, policies, time.now, monotonic=time.monotonic)
    loop.register(device())
    loop.order("sim", Poll(agent="host/1", applied=applied()))
    return Roll(loop, "tuner-1", "0.1.0", token)


def test_a_tuner_reports_itself_and_its_contacts() -> None:
    store, time = memory_store(), Time()
    roll = told_by(store, time)
    roll.tell()
    time.at += timedelta(seconds=5)
    roll.tell()
    (replica,) = store.replicas.list()
    assert (replica.host, replica.version, replica.leads) == ("tuner-1", "0.1.0", True)
    assert replica.seen_at - replica.started_at == timedelta(seconds=5)
    assert replica.agents == {1: 1}
    assert replica.cpu_s > 0.0 and replica.memory_bytes > 1_000_000
    time.at += timedelta(hours=1)
    roll.tell()
    (replica,) = store.replicas.list()
    assert replica.agents == {}, "who fell silent speaks nothing"


def test_another_token_file_raises_a_warning_without_any_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, time = memory_store(), Time()
    told_by(store, time).tell()
    told_by(store, time).tell()
    assert "token file" not in caplog.text
    told_by(store, time, "another").tell()
    assert caplog.text.count("has a different token file") == 2
    assert all(len(one.token_mark) == 4 for one in store.replicas.list())
    assert mark_of("one") != mark_of("another")
