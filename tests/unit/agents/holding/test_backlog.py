"""The queue that a risen load leaves: a lower row waits until it is served, but not without end."""

from __future__ import annotations

import pytest

from agents.holding.backlog import LONGEST_S, Backlog


def fed(backlog: Backlog, since: int, until: int, rate: float, inside: float | None) -> float:
    """Report one reading a second, and return the time of the last."""
    for now in range(since, until):
        backlog.see(float(now), rate, inside)
    return float(until - 1)


def spiked(inside: float | None) -> tuple[Backlog, float]:
    """Return a backlog after ten usual minutes and a minute at four times the rate, and the time."""
    backlog = Backlog()
    backlog.rise(fed(backlog, 0, 600, 2.0, None if inside is None else 10.0))
    return backlog, fed(backlog, 600, 660, 8.0, inside)


def test_a_lower_row_waits_until_the_requests_of_a_spike_are_served() -> None:
    backlog, _ = spiked(200.0)
    now = fed(backlog, 660, 700, 2.0, 150.0)
    assert not backlog.served(now), "the rate is the usual one again, the queue is not"
    assert backlog.served(fed(backlog, 700, 720, 2.0, 13.0))
    assert backlog.served(fed(backlog, 720, 722, 2.0, 500.0)), "nothing has risen since"


def test_more_requests_at_a_higher_rate_are_not_a_queue() -> None:
    backlog = Backlog()
    backlog.rise(fed(backlog, 0, 600, 2.0, 10.0))
    now = fed(backlog, 600, 3000, 6.0, 31.0)
    assert backlog.served(now), "each takes as long as before"


def test_a_queue_of_another_cause_ends_no_saving_permanently() -> None:
    backlog, now = spiked(200.0)
    later = int(now) + 1
    assert not backlog.served(fed(backlog, later, later + 300, 2.0, 90.0))
    assert backlog.served(fed(backlog, later + 300, later + 300 + int(LONGEST_S), 2.0, 90.0))


def test_without_a_signal_of_the_requests_it_takes_as_long_as_the_rise() -> None:
    backlog, now = spiked(None)
    later = int(now) + 1
    assert not backlog.served(fed(backlog, later, later + 30, 2.0, None))
    assert backlog.served(fed(backlog, later + 30, later + 300, 2.0, None))


@pytest.mark.parametrize("inside", [0.0, 100.0, None])
def test_before_a_minute_was_seen_nothing_is_usual(inside: float | None) -> None:
    backlog = Backlog()
    backlog.rise(fed(backlog, 0, 5, 0.0, 0.0))
    assert backlog.served(fed(backlog, 5, 20, 2.0, inside))


def test_two_readings_at_one_time_change_nothing() -> None:
    backlog = Backlog()
    for _ in range(3):
        backlog.see(1.0, 5.0, 3.0)
    backlog.rise(1.0)
    assert backlog.served(1.0)
