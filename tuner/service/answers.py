"""Messages as HTTP answers, each rendered by its own configuration, which keeps infinite bounds.

As a member of a union or a list it would be rendered by theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response

from tuner.wire import Message


def one(message: Message, status: int = 200) -> Response:
    """Return a message as an answer."""
    return Response(message.model_dump_json(), status, media_type="application/json")


def many(messages: Sequence[Message]) -> Response:
    """Return messages as one JSON array."""
    body = ",".join(m.model_dump_json() for m in messages)
    return Response(f"[{body}]", media_type="application/json")
