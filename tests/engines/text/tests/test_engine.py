from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pytest

from tests.engines.text.decoding import Decoder
from tests.engines.text.engine import DRAFT, LENGTH, LONGEST, SIGNAL, TextEngine
from tests.engines.text.sequence import DecodingSequence
from tests.engines.text.tests.tiny import tiny
from tests.engines.text.tokenizer import encode
from tests.errors import raised
from tuner.core import Conflict, InvalidInput, OutOfRange, Plan, Row, UnknownKnob

TARGET, SMALL = tiny(1, 32, 0), tiny(1, 32, 1)
PATIENCE_S = 60.0


class Asked:
    """A request whose end can be awaited."""

    def __init__(self, most: int = 30, prompt: str = "def f") -> None:
        self.tokens: list[int] = []
        self.done = threading.Event()
        self.sequence = DecodingSequence(encode(prompt), most, self.take, ignores_eos=True)

    def take(self, tokens: list[int], ended: bool) -> None:
        self.tokens += tokens
        if ended:
            self.done.set()

    def wait(self) -> Asked:
        assert self.done.wait(PATIENCE_S)
        return self


@pytest.fixture
def engine() -> Iterator[TextEngine]:
    engine = TextEngine(Decoder(TARGET, {"small": SMALL, "itself": TARGET}, 4))
    engine.start()
    yield engine
    engine.close()


def plan(*rows: tuple[float, int]) -> Plan:
    return Plan(
        tuple(Row(below, {LENGTH: length, DRAFT: "itself"}) for below, length in rows), SIGNAL
    )


def asked(engine: TextEngine, count: int, most: int = 30) -> list[Asked]:
    requests = [Asked(most) for _ in range(count)]
    for request in requests:
        engine.submit(request.sequence)
    return [request.wait() for request in requests]


def test_requests_beyond_the_slots_wait_their_turn(engine: TextEngine) -> None:
    requests = asked(engine, 10)
    assert len({tuple(r.tokens) for r in requests}) == 1 and len(requests[0].tokens) == 30
    totals = engine.totals
    assert (totals.arrived, totals.requests, totals.failed) == (10, 10, 0)
    assert totals.tokens == 300
    assert engine.inside == (0, 0)


def test_a_setting_is_used_as_it_is_from_the_next_step_on(engine: TextEngine) -> None:
    plain = asked(engine, 1)[0].tokens
    assert engine.totals.drafted == 0
    engine.apply({LENGTH: 4, DRAFT: "itself"})
    assert asked(engine, 1)[0].tokens == plain
    totals = engine.totals
    assert totals.drafted == 4 * totals.drafts > 0
    assert totals.by_position == [totals.drafts] * 4, "what it writes itself always stands"
    assert engine.setting == {LENGTH: 4, DRAFT: "itself"}


def test_every_step_uses_the_plans_row_for_the_load(engine: TextEngine) -> None:
    engine.follow(plan((1.5, 3), (math.inf, 0)))
    asked(engine, 4, most=60)
    followed, row = engine.followed
    assert followed == plan((1.5, 3), (math.inf, 0)) and row in (0, 1)
    crowded = engine.totals
    for _ in range(3):
        asked(engine, 1, most=100)
    assert engine.followed[1] == 0
    assert engine.totals.drafted > crowded.drafted
    assert engine.setting == {LENGTH: 3, DRAFT: "itself"}
    engine.apply({LENGTH: 0})
    assert engine.followed == (None, None)
    assert engine.setting[LENGTH] == 0


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({LENGTH: LONGEST + 1}, OutOfRange),
        ({DRAFT: "unheard of"}, OutOfRange),
        ({"length": 1}, UnknownKnob),
    ],
)
def test_an_unfitting_setting_changes_nothing(
    engine: TextEngine, setting: dict[str, int | str], error: type[InvalidInput]
) -> None:
    before = engine.setting
    with pytest.raises(error):
        engine.apply(setting)
    assert engine.setting == before


def test_a_plan_with_a_row_that_does_not_fit_is_refused(engine: TextEngine) -> None:
    with pytest.raises(OutOfRange):
        engine.follow(plan((1.5, 3), (math.inf, LONGEST + 1)))
    assert engine.followed == (None, None)


def test_a_plan_for_another_signal_is_refused(engine: TextEngine) -> None:
    rows = plan((1.5, 3), (math.inf, 0)).rows
    with raised(Conflict, "decoding_requests"):
        engine.follow(Plan(rows, "requests_in_system"))


@pytest.mark.parametrize("prompt", ["", "x" * 128])
def test_a_prompt_that_leaves_no_room_is_refused(engine: TextEngine, prompt: str) -> None:
    with raised(InvalidInput, "context"):
        engine.submit(Asked(prompt=prompt).sequence)
    assert engine.totals.arrived == 0


def test_a_failure_ends_only_the_present_requests(engine: TextEngine) -> None:
    failed = Asked()
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Decoder, "step", lambda *_: 1 / 0)
        engine.submit(failed.sequence)
        failed.wait()
    assert failed.sequence.failed and engine.totals.failed == 1
    assert len(asked(engine, 1)[0].tokens) == 30


def test_an_unreadable_prompt_leaves_no_caller_waiting(engine: TextEngine) -> None:
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Decoder, "join", lambda *_: 1 / 0)
        requests = [Asked() for _ in range(3)]
        for request in requests:
            engine.submit(request.sequence)
        assert all(request.wait().sequence.failed for request in requests)
    assert engine.totals.failed == 3 and engine.inside == (0, 0)
    assert len(asked(engine, 1)[0].tokens) == 30


def test_closing_ends_all_waits() -> None:
    engine = TextEngine(Decoder(TARGET, {"small": SMALL}, 1))
    requests = [Asked(100) for _ in range(3)]
    for request in requests:
        engine.submit(request.sequence)
    engine.start()
    engine.close()
    assert all(r.wait().done.is_set() for r in requests)
    assert any(r.sequence.failed for r in requests)
