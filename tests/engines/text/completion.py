"""Completions over HTTP in the format of llama.cpp's server, for its clients and ours.

A subset of `POST /completion` (tools/server/README.md of llama.cpp): `prompt`, `n_predict`, `temperature`,
`seed`, `stream`, `ignore_eos`; pieces carry `content`, `tokens_predicted` and `stop`.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from tests.engines.text.engine import TextEngine
from tests.engines.text.sequence import DecodingSequence
from tests.engines.text.tokenizer import BOS, encode
from tuner.core import DeviceLost, InvalidInput

Piece = tuple[list[int], bool]


class CompletionRequest(BaseModel):
    """The parsed body of a completion request."""

    prompt: str = Field(min_length=1)
    n_predict: int = Field(default=64, ge=1)
    temperature: float = Field(default=0.0, ge=0.0, le=100.0, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, lt=2**63)
    stream: bool = False
    ignore_eos: bool = False


def parsed(body: bytes) -> CompletionRequest:
    """Return the request in a body. Raises InvalidInput."""
    try:
        return CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the body"
        raise InvalidInput(
            f"this asks for no completion: {where}: {first['msg']}",
            hint="correct it, and send the request again",
        ) from None


class Completion:
    """One request in the engine, read from the server's loop."""

    def __init__(self, engine: TextEngine, request: CompletionRequest) -> None:
        loop, self._pieces = asyncio.get_running_loop(), asyncio.Queue[Piece]()

        def deliver(tokens: list[int], ended: bool) -> None:
            loop.call_soon_threadsafe(self._pieces.put_nowait, (tokens, ended))

        self._sequence = DecodingSequence(
            encode(request.prompt),
            request.n_predict,
            deliver,
            request.temperature,
            request.seed,
            request.ignore_eos,
        )
        engine.submit(self._sequence)

    async def whole(self) -> dict[str, Any]:
        """Return the finished answer. Raises DeviceLost: the engine failed."""
        texts, made = [], 0
        async for piece in self._decoded():
            texts.append(piece["content"])
            made = piece["tokens_predicted"]
        if self._sequence.failed:
            raise DeviceLost("the engine failed within this request", hint="send it again")
        return {"content": "".join(texts), "tokens_predicted": made, "stop": True}

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the answer as server-sent events; the request ends if the caller stops reading."""
        try:
            async for piece in self._decoded():
                yield b"data: " + json.dumps(piece).encode() + b"\n\n"
            if self._sequence.failed:
                error = {"code": "device_lost", "message": "the engine failed within this request"}
                yield b"data: " + json.dumps({"error": error}).encode() + b"\n\n"
        finally:
            self._sequence.cancelled = True

    async def _decoded(self) -> AsyncIterator[dict[str, Any]]:
        text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        made, ended = 0, False
        while not ended:
            tokens, ended = await self._pieces.get()
            made += len(tokens)
            content = text.decode(bytes(t for t in tokens if t < BOS), final=ended)
            yield {"content": content, "tokens_predicted": made, "stop": ended}
