from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from tests.engines.text.completion import Completion, CompletionRequest, parsed
from tests.engines.text.engine import TextEngine
from tests.engines.text.sequence import DecodingSequence
from tests.engines.text.tokenizer import EOS
from tests.errors import raised
from tuner.core import DeviceLost, InvalidInput

ASKED = CompletionRequest(prompt="def", n_predict=9)
PIECES = [([104, 195], False), ([164], False), ([105, EOS], True)]


class Scripted:
    """An engine that writes given pieces."""

    def __init__(self, pieces: list[tuple[list[int], bool]], fails: bool = False) -> None:
        self._pieces = pieces
        self._fails = fails
        self.sequence: DecodingSequence | None = None

    def submit(self, sequence: DecodingSequence) -> None:
        self.sequence = sequence
        for tokens, ended in self._pieces:
            sequence.failed = self._fails and ended
            sequence.deliver(tokens, ended)

    def asked(self) -> Completion:
        return Completion(cast(TextEngine, self), ASKED)


async def _events(engine: Scripted, most: int = 99) -> list[dict[str, Any]]:
    events = []
    stream = cast(Any, engine.asked().events())
    async for event in stream:
        events.append(json.loads(event.removeprefix(b"data: ")))
        if len(events) == most:
            break
    await stream.aclose()
    return events


def test_a_character_is_sent_once_all_its_bytes_are_decoded() -> None:
    events = asyncio.run(_events(Scripted(PIECES)))
    assert [event["content"] for event in events] == ["h", "ä", "i"]
    assert [event["tokens_predicted"] for event in events] == [2, 3, 5]
    assert [event["stop"] for event in events] == [False, False, True]


def test_a_whole_answer_is_the_pieces_together() -> None:
    async def whole() -> dict[str, Any]:
        return await Scripted(PIECES).asked().whole()

    assert asyncio.run(whole()) == {"content": "häi", "tokens_predicted": 5, "stop": True}


def test_a_disconnecting_reader_ends_its_request() -> None:
    engine = Scripted(PIECES[:2])
    assert len(asyncio.run(_events(engine, most=1))) == 1
    assert engine.sequence is not None and engine.sequence.cancelled


def test_a_failure_is_reported_in_streams_and_in_complete_answers() -> None:
    pieces: list[tuple[list[int], bool]] = [([104], False), ([], True)]
    assert asyncio.run(_events(Scripted(pieces, fails=True)))[-1]["error"]["code"] == "device_lost"

    async def whole() -> dict[str, Any]:
        return await Scripted(pieces, fails=True).asked().whole()

    with raised(DeviceLost, "request"):
        asyncio.run(whole())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "the body"),
        (b"[]", "the body"),
        (b"{}", "prompt"),
        (b'{"prompt": 1}', "prompt"),
        (b'{"prompt": "a", "n_predict": 0}', "n_predict"),
        (b'{"prompt": "a", "temperature": NaN}', "temperature"),
        (b'{"prompt": "a", "seed": 9223372036854775808}', "seed"),
    ],
)
def test_a_body_without_a_completion_request_is_named(body: bytes, says: str) -> None:
    with raised(InvalidInput, says):
        parsed(body)
