from __future__ import annotations

import pytest

from agents.target.waiting_queue import BURST_S, LEARNT_S, LEAST, WaitingQueue


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
