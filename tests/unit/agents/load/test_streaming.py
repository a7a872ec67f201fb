"""Streamed answers, timed token by token at the client."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from agents.load.http_caller import HttpCaller
from agents.load.streaming import EVENT, LONGEST_USAGE, NO_USAGE, StreamCaller, StreamTimes
from tests.builders import Time

USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}\n\n'
TOKEN = b'data: {"choices": [{"text": "a"}]}\n\n'
Seen = Callable[[bytes], None]


class Spoken(HttpCaller):
    """A connection with scripted answers: pieces, each after a given number of seconds."""

    def __init__(
        self, seen: Seen, pieces: Sequence[tuple[float, bytes]], time: Time, wrong: str
    ) -> None:
        super().__init__("127.0.0.1", 1, "/")
        self.pieces, self.time, self.wrong, self.look = pieces, time, wrong, seen

    def send(self) -> str:
        for seconds, piece in self.pieces:
            self.time.sleep(seconds)
            self.look(piece)
        return self.wrong


def answered(
    pieces: Sequence[tuple[float, bytes]], wrong: str = "", **limits: float
) -> tuple[str, StreamTimes]:
    time = Time()
    times = StreamTimes(time.monotonic())

    def connect(seen: Seen | None) -> HttpCaller:
        assert seen is not None
        return Spoken(seen, pieces, time, wrong)

    return StreamCaller(connect, times, time, limits).send(), times


def test_time_to_first_token_and_per_further_token() -> None:
    wrong, times = answered(
        [(0.5, b"HTTP/1.1 200\r\n\r\n"), (0.5, TOKEN), (0.1, TOKEN), (0.3, TOKEN + USAGE)]
    )
    assert not wrong
    assert times.first_ms == pytest.approx([1000.0])
    assert times.per_token_ms == pytest.approx([200.0])
    assert times.tokens == 3


@pytest.mark.parametrize("seed", range(20))
def test_it_does_not_matter_how_the_bytes_are_cut(seed: int) -> None:
    rng, whole = random.Random(seed), TOKEN * 5 + USAGE
    cuts = sorted(rng.sample(range(1, len(whole)), rng.randint(1, 40)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    counted: list[int] = []
    wrong, times = answered([(0.01, piece) for piece in pieces])
    assert not wrong and times.tokens == 3 and times.pieces == 0
    _, times = answered([(0.01, piece) for piece in pieces], wrong="cut off")
    counted.append(times.pieces)
    assert counted == [len(EVENT.findall(whole))]


def test_tokens_before_a_failure_are_counted_but_not_timed() -> None:
    wrong, times = answered([(1.0, TOKEN), (1.0, TOKEN)], wrong="connection closed")
    assert wrong == "connection closed"
    assert times.tokens == 2 and not times.first_ms and not times.ended


def test_an_answer_without_its_number_of_tokens_is_none() -> None:
    assert answered([(1.0, TOKEN)])[0] == NO_USAGE


@pytest.mark.parametrize(
    "event",
    [
        'data: {"error": {"code": 400, "message": "out of memory"}}',
        'data:{"error":"out of memory","error_type":"generation"}',
        'data: { "error" : { "message" : "out of memory" } }',
        'data: {"object": "error", "message": "out of memory", "code": 500}',
        'event: error\r\ndata: {"type": "error", "error": {"message": "out of memory"}}',
        'event: error\ndata: {"message": "out of memory"}',
        "event: error\ndata: out of memory",
        'error: {"code": 500, "message": "out of memory"}',
        '{"error": {"message": "out of memory"}}',
    ],
)
@pytest.mark.parametrize("before", [b"HTTP/1.1 200\r\n\r\n", TOKEN + USAGE])
def test_an_error_in_an_answer_of_status_200_is_the_answers_error(
    event: str, before: bytes
) -> None:
    piece = before + f"{event}\n\ndata: [DONE]\n\n".encode()
    assert answered([(1.0, piece)])[0] == "an error in the stream: out of memory"


def test_text_about_errors_and_an_empty_error_are_none() -> None:
    said = (
        b'data: {"error": null, "choices": [{"text": "event: error\\ndata: {\\"error\\": 1}"}]}\n\n'
    )
    assert answered([(1.0, said + USAGE)])[0] == ""
    end = b'"}]}\n\n' + USAGE
    kept = b"error: ".ljust(LONGEST_USAGE - len(end), b"x") + end
    assert answered([(1.0, b'data: {"choices": [{"text": "' + kept)])[0] == ""


def test_events_without_a_space_after_data_are_counted() -> None:
    tight = [(0.01, piece.replace(b"data: ", b"data:")) for piece in (TOKEN, TOKEN, TOKEN, USAGE)]
    wrong, times = answered(tight)
    assert not wrong and times.tokens == 3


@pytest.mark.parametrize(
    ("ttft", "tpot", "good"), [(1000, 200, True), (999, 200, False), (1000, 199, False)]
)
def test_a_request_is_good_within_every_limit(ttft: float, tpot: float, good: bool) -> None:
    pieces = [(1.0, TOKEN), (0.4, TOKEN + USAGE)]
    _, times = answered(pieces, ttft_ms=ttft + 1e-6, tpot_ms=tpot + 1e-6)
    assert [kept for _, kept in times.ended] == [good]


def test_a_request_after_a_pause_is_a_first_one() -> None:
    time, pieces = Time(), [(0.25, TOKEN + USAGE)]
    times = StreamTimes(time.monotonic())

    def connect(seen: Seen | None) -> HttpCaller:
        assert seen is not None
        return Spoken(seen, pieces, time, "")

    caller = StreamCaller(connect, times, time, {})
    for pause_s in (0.0, 0.9, 1.0, 30.0):
        time.sleep(pause_s)
        caller.send()
    assert len(times.first_ms) == 4 and times.after_pause_ms == pytest.approx([250.0] * 2)
    times.inside = 1  # another caller's request is in progress
    time.sleep(5.0)
    caller.send()
    assert len(times.after_pause_ms) == 2


def test_one_token_has_no_time_per_further_token() -> None:
    _, times = answered([(1.0, TOKEN + USAGE.replace(b"3}", b"1}"))])
    assert times.first_ms and not times.per_token_ms
