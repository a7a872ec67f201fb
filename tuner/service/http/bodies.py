"""Request bodies: limits of size, reading in the event loop, and parsing in a worker thread."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.types import Message as ASGIMessage
from starlette.types import Receive, Scope

from tuner.bounds import MOST_TEXT, Sizes, tightened
from tuner.core import InvalidInput, TooLarge, TuningError
from tuner.foreign_bodies import UNPACKED
from tuner.wire import MOST_ORDER_BYTES, Message, check_protocol

OPEN_PATHS = ("/v1/health", "/v1/ready", "/login")
OPEN_FOLDER = "/assets/"
"""Paths below it, and `OPEN_PATHS`, are answered without a token."""
OPEN_BYTES = 16 * 1024

MOST_NESTED, MOST_PARTS = 25_000, 250_000
"""The most lists and mappings in a message, and the most items in all of them.

The parser holds the interpreter's lock while it creates them.
"""

PARAMETERS = Sizes(text=MOST_TEXT, strict=False)
SENT = {str, int, float, bool, datetime, type(None), ...}
"""The types of parameters in paths, queries and headers, and the parts of such types."""
Refusal = RequestValidationError | TuningError
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def is_open(path: str) -> bool:
    """Return whether a path is answered without a token."""
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def most_bytes(scope: Scope) -> int:
    """Return the most bytes that the body of a request may have."""
    path: str = scope["path"]
    if is_open(path):
        return OPEN_BYTES
    of_device = scope["method"] == "PUT" and path.startswith("/v1/devices/")
    return MOST_ORDER_BYTES if of_device else Message.most_bytes


async def received(receive: Receive, most: int) -> tuple[Receive, int]:
    """Receive a whole request; return a `receive` that repeats it and then continues, and its size.

    Raises:
        TooLarge: it has more than `most` bytes; the rest is left unread.
    """
    messages: list[ASGIMessage] = []
    size = 0
    while not messages or messages[-1].get("more_body"):
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
        if size > most:
            raise too_large(most)
    remaining = iter(messages)

    async def again() -> ASGIMessage:
        return next(remaining, None) or await receive()

    return again, size


def too_large(most: int) -> TooLarge:
    """Return the refusal of a body with more than `most` bytes."""
    return TooLarge(
        f"the body has more than {most} bytes", hint="send fewer items, or split the request"
    )


class Bound:
    """The mark of a parameter in a path, a query or a header: it has the bounds of a message's field."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> Any:  # noqa: ANN401
        """Return the schema with a bound for every number, text and list."""
        return tightened(handler(source), handler.resolve_ref_schema, PARAMETERS)


class BoundedRoute(APIRoute):
    """A route whose parameters in path, query and headers have bounds, whether they declare any or not."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401
        hints, signature = (
            get_type_hints(endpoint, include_extras=True),
            inspect.signature(endpoint),
        )
        bounded = [
            parameter.replace(annotation=_bounded(hints.get(name, Any)))
            for name, parameter in signature.parameters.items()
        ]
        endpoint.__signature__ = signature.replace(parameters=bounded)  # type: ignore[attr-defined]
        super().__init__(path, endpoint, **options)


def _bounded(kind: Any) -> Any:  # noqa: ANN401  a type
    """Return the type of a parameter with bounds; a model or a dependency unchanged."""
    plain = kind.__origin__ if get_origin(kind) is Annotated else kind
    parts = {*get_args(plain)} or {plain}
    return Annotated[kind, Bound()] if parts <= SENT else kind


class ThreadedRoute(BoundedRoute):
    """A route whose JSON body is parsed and validated in a worker thread, not in the event loop.

    FastAPI accepts a body that is already a model.
    """

    def get_route_handler(self) -> Handler:
        """Return the handler of a request."""
        answer, model = super().get_route_handler(), _model_of(self.endpoint)

        async def handle(request: Request) -> Response:
            self._refuse_unknown(request)
            coding = request.headers.get("content-encoding", "").strip().lower()
            if coding not in UNPACKED:
                hint = "send it as it is, without Content-Encoding"
                raise InvalidInput(f"the body is packed as {ascii(coding)[:40]}", hint=hint)
            if model is None:
                return await answer(request)
            wrapped = _Parsed(request.scope, request.receive)
            if _is_json(request) and (body := await wrapped.body()):
                wrapped.parsed = await run_in_threadpool(_parse, model, body)
            try:
                return await answer(wrapped)
            except RequestValidationError:
                if isinstance(wrapped.parsed, Refusal):
                    raise wrapped.parsed from None
                raise

        return handle

    def _refuse_unknown(self, request: Request) -> None:
        """Refuse a query with a name that the route does not take, or with one twice."""
        declared, seen = {field.alias for field in self.dependant.query_params}, set[str]()
        for name, _ in request.query_params.multi_items():
            if name not in declared or name in seen:
                wrong = "is given twice" if name in seen else "is not known here"
                hint = f"this path takes {', '.join(sorted(declared)) or 'no query'}"
                raise InvalidInput(f"query: {ascii(name)[:80]} {wrong}", hint=hint)
            seen.add(name)


class _Parsed(Request):
    """A request whose body is already a model, or a refusal."""

    parsed: BaseModel | Refusal | None = None

    async def json(self) -> Any:  # noqa: ANN401  Starlette's own
        """Return the model; in place of a refusal return 0, which no route accepts.

        FastAPI then checks the caller's role before it refuses the body.
        """
        return 0 if isinstance(self.parsed, Refusal) else self.parsed


def _model_of(endpoint: Callable[..., Any]) -> type[BaseModel] | None:
    """Return the model that an endpoint takes as its body; None without a body."""
    hints = get_type_hints(endpoint)
    hints.pop("return", None)
    models = [t for t in hints.values() if isinstance(t, type) and issubclass(t, BaseModel)]
    return models[0] if models else None


def _is_json(request: Request) -> bool:
    """Return whether the content type of the body is JSON, by FastAPI's rule."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return re.fullmatch(r"application/([^/]*\+)?json", kind) is not None


def _parse(model: type[BaseModel], body: bytes) -> BaseModel | Refusal:
    """Return the model of a body, or the refusal of a body that does not fit or has another protocol."""
    try:
        parsed = _checked(model, body)
        if isinstance(parsed, Message):
            check_protocol(parsed.protocol)
        return parsed
    except TuningError as error:
        return error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where: Sequence[str | int] = first["loc"]
        return RequestValidationError([{**first, "loc": ("body", *where)}])


def _checked(model: type[BaseModel], body: bytes) -> BaseModel:
    """Return the model of a body. Raises InvalidInput, ProtocolMismatch, ValidationError."""
    if sum(map(body.count, (b"[", b"{"))) > MOST_NESTED or body.count(b",") > MOST_PARTS:
        raise InvalidInput("the message has too many parts", hint="send fewer, or shorter lists")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        with suppress(ValidationError):  # a message of another protocol may have other fields
            check_protocol(Message.model_validate_json(body).protocol)
        if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            raise
        # Python's JSON accepts half of a surrogate pair; the model then refuses it as text.
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise error from None
        return model.model_validate(value)
