"""Messages as HTTP answers, each rendered by its own configuration, which keeps infinite bounds.

As a member of a union or a list it would be rendered by theirs.
"""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import ConfigDict, TypeAdapter

from tuner.wire import Message

PLAIN: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="strings"))
"""What is no message of ours: values of the vocabulary."""


def rendered(answer: object, status: int = 200) -> Response:
    """Return results as a response: a message, values, or nothing."""
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=status)
    return Response(_json(answer), status, media_type="application/json")


def _json(answer: object) -> str | bytes:
    if isinstance(answer, Message):
        return answer.model_dump_json()
    if isinstance(answer, list) and all(isinstance(one, Message) for one in answer):
        return f"[{','.join(one.model_dump_json() for one in answer)}]"
    return PLAIN.dump_json(answer)
