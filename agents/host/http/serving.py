"""Our own servers: they listen on loopback, report that they are ready, answer, and end.

Bodies and errors are those of the workload contract.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any

import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tuner.core import ActuationError, Conflict, InvalidInput, TuningError
from tuner.foreign_bodies import UNPACKED, BodyLate, BodyRefused, parsed, received

LOOPBACK = "127.0.0.1"
END_S = 5
LONGEST_BODY, BODY_S = 65536, 60.0
CODES = {400: "malformed_json", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}
STATUS: dict[type[TuningError], int] = {InvalidInput: 422, Conflict: 409, ActuationError: 503}


def listening(port: int) -> socket.socket:
    """Return a socket that listens on a loopback port; port 0 chooses a free one. Raises InvalidInput."""
    # The protocol is explicit: without it asyncio does not recognize TCP and leaves Nagle's algorithm
    # on, which adds up to 40 ms to latencies.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise InvalidInput(
            f"cannot listen on {LOOPBACK}:{port}: {error}", hint="choose another --port"
        ) from None
    return listener


def quiet_server(application: Starlette, end_s: int = END_S) -> uvicorn.Server:
    """Return a server that logs no requests and adds no headers.

    After a signal, requests in progress have `end_s` seconds to finish.
    """
    return uvicorn.Server(
        uvicorn.Config(
            application,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=end_s,
        )
    )


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    return f"http://{LOOPBACK}:{listener.getsockname()[1]}"


def tell_ready(listener: socket.socket) -> None:
    """Write one line of JSON with the server's URL and process id to standard output."""
    announced = {"ready": True, "url": url_of(listener), "pid": os.getpid()}
    sys.stdout.write(json.dumps(announced) + "\n")
    sys.stdout.flush()


def end_by_signal() -> None:
    """Exit with status 0 on SIGTERM or SIGINT; uvicorn first ends gracefully and then raises it again."""
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)


def end_with_stdin() -> None:
    """Send SIGTERM to this process when the other end of its standard input is closed."""
    threading.Thread(target=_end_at_eof, daemon=True).start()


def _end_at_eof() -> None:
    """Wait for the end of standard input, then send SIGTERM to this process."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit with status 0: the handler of a signal."""
    sys.exit(0)


async def body_of(request: Request, longest: int = LONGEST_BODY) -> bytes:
    """Return a request's body.

    Raises:
        HTTPException: the body is longer than `longest` bytes (413), incomplete after 60 s (408), or
            packed (415).
    """
    if request.headers.get("content-encoding", "").strip().lower() not in UNPACKED:
        raise HTTPException(415, "the body is packed; send it without Content-Encoding")
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
