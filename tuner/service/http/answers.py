"""Messages as HTTP responses, each serialised by its own configuration, which keeps infinite bounds.

A union or a list would serialise its members by the configuration of the union or list.
"""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import ConfigDict, TypeAdapter

from tuner.wire import Message

PLAIN: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="strings"))
"""Serialises values that are not messages of `tuner.wire`, such as values of `tuner.core`."""


def rendered(answer: object, status: int = 200) -> Response:
    """Return a response with a message, with values, or without a body."""
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=status)
    return Response(_json(answer), status, media_type="application/json")


def _json(answer: object) -> str | bytes:
    """Return the JSON of a message, a list of messages, or values of `tuner.core`."""
    if isinstance(answer, Message):
        return answer.model_dump_json()
    if isinstance(answer, list) and all(isinstance(one, Message) for one in answer):
        return f"[{','.join(one.model_dump_json() for one in answer)}]"
    return PLAIN.dump_json(answer)
