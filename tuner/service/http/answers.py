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


def rendered(found: object, status: int = 200) -> Response:
    """Return results as a response: a message, values, or nothing."""
    if isinstance(found, Response):
        return found
    if found is None:
        return Response(status_code=status)
    return Response(_json(found), status, media_type="application/json")


def _json(found: object) -> str | bytes:
    if isinstance(found, Message):
        return found.model_dump_json()
    if isinstance(found, list) and all(isinstance(one, Message) for one in found):
        return f"[{','.join(one.model_dump_json() for one in found)}]"
    return PLAIN.dump_json(found)
