"""Request bodies and error responses of our own servers, as the workload contract defines them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tuner.core import ActuationError, Conflict, InvalidInput, TuningError
from tuner.foreign_bodies import BodyLate, BodyRefused, parsed, received

LONGEST_BODY, BODY_S = 65536, 60.0
CODES = {400: "malformed_json", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}
STATUS: dict[type[TuningError], int] = {InvalidInput: 422, Conflict: 409, ActuationError: 503}


async def body_of(request: Request, longest: int = LONGEST_BODY) -> bytes:
    """Return a request's body.

    Raises:
        HTTPException: the body is longer than `longest` bytes (413), or incomplete after 60 s (408).
    """
    try:
        return await received(request.stream(), longest, BODY_S)
    except BodyLate as error:
        raise HTTPException(408, str(error)) from None
    except BodyRefused:
        raise HTTPException(413, f"the body may have at most {longest} bytes") from None


async def json_of(request: Request) -> object:
    """Return a request's JSON. Raises HTTPException: the body is not JSON, too long or too late."""
    return parsed_json(await body_of(request))


async def object_of(request: Request) -> dict[str, Any]:
    """Return a request's JSON object.

    Raises:
        InvalidInput: the JSON is not an object.
        HTTPException: the body is not JSON, too long or too late.
    """
    return as_object(await json_of(request))


def as_object(body: object) -> dict[str, Any]:
    """Return parsed JSON as an object. Raises InvalidInput: it is not an object."""
    if not isinstance(body, dict):
        raise InvalidInput(f"the body must be a JSON object, not {type(body).__name__}")
    return body


def parsed_json(body: bytes) -> Any:  # noqa: ANN401  JSON
    """Return a body's JSON. Raises HTTPException: the body is not JSON (400)."""
    try:
        return parsed(body)
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None


def message_answer(message: BaseModel) -> Response:
    """Return the response whose body is a message as JSON."""
    return Response(message.model_dump_json(), media_type="application/json")


def error_answer(status: int, code: str, message: str) -> Response:
    """Return the response for an error: its code and message as JSON."""
    return JSONResponse({"error": {"code": code, "message": message}}, status)


async def _failed(request: Request, error: Exception) -> Response:
    """Return the response for one of our errors, with the HTTP status of its class."""
    assert isinstance(error, TuningError)
    status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
    return error_answer(status, error.code, str(error))


async def _refused(request: Request, error: Exception) -> Response:
    """Return the response for an HTTP error."""
    assert isinstance(error, HTTPException)
    return error_answer(error.status_code, CODES.get(error.status_code, "http"), error.detail)


HANDLERS: dict[Any, Any] = {**dict.fromkeys(STATUS, _failed), HTTPException: _refused}
"""The handlers with which a Starlette application answers errors."""
