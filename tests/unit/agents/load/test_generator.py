from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable

import pytest

from agents.host.machine import HostClock
from agents.load.generator import PAUSE_S, STEP_S, UNSENT, LoadRun, LoadShape, sent
from tuner.core import InvalidInput


class HandClock:
    """A clock that advances only by sleeping, or by the test."""

    def __init__(self) -> None:
        self._now = 100.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds


class Scripted:
    """A caller that acts by a function of the request's number, from 1 on."""

    def __init__(self, behaviour: Callable[[int], str]) -> None:
        self.behaviour = behaviour
        self.sent = 0
        self.closed = threading.Event()

    def send(self) -> str:
        self.sent += 1
        return self.behaviour(self.sent)

    def close(self) -> None:
        self.closed.set()


def well(_: int) -> str:
    return ""


def test_closed_loop_keeps_exactly_its_callers_under_way() -> None:
    meet = threading.Barrier(4)
    lock = threading.Lock()
    under_way, most = 0, 0

    def together(_: int) -> str:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        meet.wait(timeout=10)  # passes only with four concurrent requests
        with lock:
            under_way -= 1
        return ""

    run = LoadRun(lambda: Scripted(together), LoadShape(4), clock=HostClock(), max_requests=80)
    tally = run.wait()
    assert most == 4
    assert len(tally.latencies_s) == 80
    assert tally.failed == 0


def open_loop(seed: int, requests: int = 4000) -> list[float]:
    run = LoadRun(
        lambda: Scripted(well),
        LoadShape(1, rate_per_s=50.0),
        clock=HandClock(),
        seed=seed,
        max_requests=requests,
    )
    return list(run.wait().arrived_at_s)


def test_open_loop_arrivals_are_poisson_at_the_rate() -> None:
    arrivals = open_loop(seed=3)
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    assert statistics.mean(gaps) == pytest.approx(1 / 50.0, rel=0.06)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50.0, rel=0.08)


def test_open_loop_arrivals_depend_on_the_seed_alone() -> None:
    assert open_loop(seed=1, requests=50) == open_loop(seed=1, requests=50)
    assert open_loop(seed=1, requests=50) != open_loop(seed=2, requests=50)


def test_a_stall_counts_against_every_request_it_delays() -> None:
    clock = HandClock()
    service = dict.fromkeys(range(1, 201), 0.01) | {20: 3.0}

    def serve(number: int) -> str:
        clock.sleep(service[number])
        return ""

    run = LoadRun(
        lambda: Scripted(serve), LoadShape(1, rate_per_s=10.0), clock=clock, max_requests=200
    )
    tally = run.wait()
    free_at, expected = 0.0, []
    for number, due in enumerate(tally.arrived_at_s, start=1):
        free_at = max(free_at, due) + service[number]
        expected.append(free_at - due)
    assert tally.latencies_s == pytest.approx(expected, abs=1e-6)
    assert sum(latency > 1.0 for latency in tally.latencies_s) > 10


def test_failures_are_counted_by_reason_and_have_no_latency() -> None:
    clock = HandClock()
    run = LoadRun(
        lambda: Scripted(lambda n: "HTTP 503" if n % 5 == 0 else ""),
        LoadShape(1),
        clock=clock,
        max_requests=50,
    )
    tally = run.wait()
    assert tally.failures == {"HTTP 503": 10}
    assert tally.failed == 10
    assert len(tally.latencies_s) == 40
    assert len(tally.arrived_at_s) == 50
    assert clock.monotonic() - 100.0 == pytest.approx(10 * PAUSE_S)


def test_a_run_ends_at_its_longest_time() -> None:
    clock = HandClock()

    def serve(_: int) -> str:
        clock.sleep(0.5)
        return ""

    tally = LoadRun(lambda: Scripted(serve), LoadShape(1), clock=clock, max_s=10.0).wait()
    assert len(tally.latencies_s) == 20


def test_stop_is_bounded_and_cuts_off_hanging_requests() -> None:
    hanging: list[Scripted] = []

    def connect() -> Scripted:
        caller = Scripted(lambda _: "")
        caller.behaviour = lambda _: "cut off" if caller.closed.wait(60) else ""
        hanging.append(caller)
        return caller

    run = LoadRun(connect, LoadShape(3), clock=HostClock())
    began = time.monotonic()
    tally = run.stop(grace_s=0.1)
    assert time.monotonic() - began < 5.0
    assert tally.failures == {"cut off": 3}
    assert run.stop() == tally


def test_arrivals_that_found_no_caller_are_failures_not_forgotten() -> None:
    clock = HandClock()
    busy = threading.Event()
    caller = Scripted(lambda _: "")

    def hang(_: int) -> str:
        busy.set()
        return "cut off" if caller.closed.wait(60) else ""

    caller.behaviour = hang
    run = LoadRun(lambda: caller, LoadShape(1, rate_per_s=100.0), clock=clock)
    assert busy.wait(10)
    clock.sleep(20.0)
    tally = run.stop(grace_s=0.0)
    assert tally.failures[UNSENT] == pytest.approx(2000, rel=0.1)
    assert len(tally.arrived_at_s) == tally.failures[UNSENT] + 1


@pytest.mark.parametrize(("late_s", "missed"), [(0.9 * STEP_S, 0.0), (2.0, 2.0 - STEP_S)])
def test_requests_due_at_the_stop_are_not_failures_while_a_caller_is_free(
    late_s: float, missed: float
) -> None:
    class Stuck(HandClock):
        def __init__(self) -> None:
            super().__init__()
            self.asleep, self.wake = threading.Event(), threading.Event()

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if seconds < STEP_S:  # The last sleep before the first arrival.
                self.asleep.set()
                self.wake.wait(10)

    clock = Stuck()
    run = LoadRun(lambda: Scripted(well), LoadShape(2, rate_per_s=1000.0), clock=clock)
    assert clock.asleep.wait(10)
    HandClock.sleep(clock, late_s)
    threading.Timer(0.05, clock.wake.set).start()
    unsent = run.stop(grace_s=0.0).failures.get(UNSENT, 0)
    assert unsent == pytest.approx(1000.0 * missed, rel=0.1)


def test_among_many_idle_callers_one_waits_for_the_next_arrival() -> None:
    class Counting(HostClock):
        slept = 0

        def sleep(self, seconds: float) -> None:
            self.slept += 1
            super().sleep(seconds)

    clock, began = Counting(), time.monotonic()
    run = LoadRun(lambda: Scripted(well), LoadShape(64, rate_per_s=0.01), clock=clock)
    time.sleep(0.3)
    run.stop()
    assert 1 <= clock.slept <= (time.monotonic() - began) / STEP_S + 1


def test_a_run_can_be_read_while_it_goes_on() -> None:
    tenth, go_on = threading.Event(), threading.Event()

    def serve(number: int) -> str:
        if number == 11:
            tenth.set()
            go_on.wait(10)
        return ""

    run = LoadRun(lambda: Scripted(serve), LoadShape(1), clock=HostClock(), max_requests=30)
    assert tenth.wait(10)
    assert len(run.read().latencies_s) == 10
    go_on.set()
    assert len(run.wait().latencies_s) == 30


@pytest.mark.parametrize(
    ("callers", "rate"), [(0, None), (4, 0.0), (4, float("nan")), (4, float("inf"))]
)
def test_an_invalid_load_shape_is_refused(callers: int, rate: float | None) -> None:
    with pytest.raises(InvalidInput):
        LoadShape(callers, rate)


def test_a_load_goes_up_and_down_by_doubling() -> None:
    shape = LoadShape(12, low=2, cycle_s=6.0)
    assert [shape.active(s) for s in (0.0, 1.1, 2.1, 3.1, 4.1, 5.1, 6.1, 7.1)] == [
        *(2, 4, 8, 12, 8, 4),
        *(2, 4),
    ]
    assert not shape.context, "a window's load is what was requested"
    assert str(shape) == "closed loop of 2 to 12 and back in 6 s"


def test_an_alternating_load_is_requested_by_its_two_ends_and_its_cycle() -> None:
    asked = {"decoding_requests_low": 1.0, "decoding_requests_high": 8.0, "cycle_s": 4.0}
    assert LoadShape.from_context(sent(asked, "decoding_requests")) == LoadShape(
        8, low=1, cycle_s=4.0
    )
    with pytest.raises(InvalidInput, match="8 to 8 callers"):
        LoadShape.from_context(sent({**asked, "decoding_requests_low": 8.0}, "decoding_requests"))
    with pytest.raises(InvalidInput, match="no load can be sent"):
        LoadShape.from_context({"cycle_s": 4.0})


def test_callers_beyond_the_moments_number_send_nothing() -> None:
    callers: list[Scripted] = []

    def connect() -> Scripted:
        callers.append(Scripted(well))
        return callers[-1]

    shape = LoadShape(2, low=1, cycle_s=1e9)
    run = LoadRun(connect, shape, clock=HostClock(), max_requests=50)
    while callers[0].sent < 50:
        time.sleep(0.001)
    assert run.stop().failed == 0
    assert callers[1].sent == 0
