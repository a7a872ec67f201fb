from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agents.target.escape import BURST_S, LEARNT_S, LEAST, LOOK_S, WAITING, Escape, WaitingQueue
from agents.target.side import SignalSample
from tests.builders import SPACE, setting
from tuner.core import Conflict, Setting

SLOW, BASELINE = setting(600), setting()
MANY = 10.0 * LEAST


def passed(
    queue: WaitingQueue, seconds: float, waiting: float, *, baseline: bool, now: float = 0.0
) -> float:
    for k in range(round(seconds)):
        queue.see(now + k, waiting, waiting + 10.0, baseline=baseline)
    return now + round(seconds)


@pytest.mark.parametrize("baseline", [False, True])
def test_one_request_more_than_usual_makes_a_queue_long_at_once(baseline: bool) -> None:
    queue = WaitingQueue()
    now = passed(queue, 60.0, LEAST, baseline=baseline)
    assert not queue.long
    queue.see(now, LEAST + 1.0, 20.0, baseline=baseline)
    assert queue.long


def test_a_queue_is_served_once_fewer_requests_are_in_the_service() -> None:
    queue = WaitingQueue()
    queue.see(0.0, 9.0, 20.0, baseline=False)
    queue.see(1.0, 0.0, 20.0, baseline=False)
    assert queue.long
    queue.see(2.0, 0.0, 16.0, baseline=False)
    assert not queue.long


def test_a_queue_at_the_baseline_is_usual_after_some_minutes() -> None:
    queue = WaitingQueue()
    now = passed(queue, LEARNT_S + BURST_S + 2.0, 8.0, baseline=True)
    assert queue.usual == 8
    queue.see(now, 8.0, 18.0, baseline=False)
    assert not queue.long
    queue.see(now + 1.0, 9.0, 19.0, baseline=False)
    assert queue.long


def test_bursts_and_queues_at_other_settings_are_not_learnt() -> None:
    queue = WaitingQueue()
    now = passed(queue, LEARNT_S + 2.0, 1.0, baseline=True)
    now = passed(queue, 3 * LEARNT_S, 2.0, baseline=False, now=now)
    for _ in range(20):
        now = passed(queue, 40.0, 30.0, baseline=True, now=now)
        now = passed(queue, 20.0, 0.0, baseline=True, now=now)
    assert queue.usual == LEAST


def test_a_long_gap_between_readings_changes_no_usual_queue() -> None:
    queue = WaitingQueue()
    queue.see(0.0, 1.0, 1.0, baseline=True)
    queue.see(10 * LEARNT_S, 50.0, 50.0, baseline=False)
    assert queue.usual == LEAST and queue.long


class Service:
    """A target whose queue and setting are set by hand."""

    def __init__(self) -> None:
        self.space, self.waiting, self.in_force = SPACE, 0.0, dict(SLOW)
        self.applied: list[Setting] = []
        live = SimpleNamespace(read=lambda: SignalSample(present=self.waiting))
        self.signals: dict[str, Any] = {WAITING: live}
        self.caps = SimpleNamespace(lowered=lambda *_: False)

    def read(self) -> Setting:
        return self.in_force

    def apply(self, wanted: Setting) -> None:
        self.in_force = dict(wanted)
        self.applied.append(wanted)

    def conflicts(self) -> list[str]:
        return []


def looking(service: Service) -> tuple[Escape, Any]:
    """Return an escape from SLOW, and a function that looks at a queue of a length."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    escape = Escape(cast(Any, service), cast(Any, clock), WaitingQueue(), SLOW, BASELINE)

    def look(waiting: float) -> None:
        service.waiting, now[0] = waiting, now[0] + 2.0 * LOOK_S
        escape.look()

    return escape, look


def test_the_baseline_serves_a_burst_and_the_setting_is_in_force_at_the_end() -> None:
    service = Service()
    escape, look = looking(service)
    look(0.0)
    assert service.applied == []
    look(MANY)
    assert service.applied == [BASELINE]
    escape.end()
    assert service.applied == [BASELINE, SLOW]


def test_a_setting_that_was_lost_before_a_burst_is_not_hidden_by_it() -> None:
    service = Service()
    _, look = looking(service)
    service.in_force = dict(BASELINE)
    with pytest.raises(Conflict, match=r"gpu\.clock_mhz became 1000"):
        look(MANY)
    assert service.applied == []


def test_a_service_that_does_not_report_waiting_requests_has_no_escape() -> None:
    service = Service()
    service.signals = {}
    escape, look = looking(service)
    look(MANY)
    escape.end()
    assert service.applied == []
