"""The number of decoding requests, now and over time."""

from __future__ import annotations

from agents.workloads.engine.decoding import DecodingLoad


class HandClock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_seconds_add_up_over_requests_and_over_time() -> None:
    clock = HandClock()
    load = DecodingLoad(clock)
    load.arrive()
    clock.sleep(1.0)  # its prompt
    load.begin()
    load.arrive()
    load.begin()
    clock.sleep(2.0)
    load.leave(decoding=True, failed=False)
    clock.sleep(3.0)
    load.leave(decoding=True, failed=True)
    clock.sleep(4.0)
    assert load.seconds == (1.0 + 4.0 + 3.0, 4.0 + 3.0, 5.0)
    assert (load.arrived, load.failed, load.inside, load.decoding) == (2, 1, 0, 0)


def test_no_more_requests_decode_than_the_server_has_slots() -> None:
    clock = HandClock()
    load = DecodingLoad(clock)
    load.slots = 2
    for _ in range(5):
        load.arrive()
        load.begin()
    clock.sleep(1.0)
    assert load.decoding == 2
    assert load.seconds == (5.0, 2.0, 1.0)


def test_a_request_that_ended_before_decoding_lowers_no_count() -> None:
    load = DecodingLoad(HandClock())
    load.arrive()
    load.leave(decoding=False, failed=True)
    assert (load.decoding, load.inside) == (0, 0)
