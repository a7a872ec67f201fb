"""The door of the tuner: who is let in, and how a refusal is said."""

from __future__ import annotations

import hmac
import re

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.core import (
    Caller,
    Conflict,
    Forbidden,
    InvalidInput,
    MeasurementError,
    NotFound,
    ProtocolMismatch,
    StoreError,
    TuningError,
    Unauthorised,
)
from tuner.service.access import ADMIN, Access
from tuner.wire import Problem

STATUS: tuple[tuple[type[TuningError], int], ...] = (
    (ProtocolMismatch, 426),
    (Forbidden, 403),
    (Unauthorised, 401),
    (NotFound, 404),
    (Conflict, 409),
    (InvalidInput, 422),
    (MeasurementError, 422),
    (StoreError, 503),
    (TuningError, 500),
)
MOST_BYTES = 8 * 1024 * 1024
"""The largest body that is announced; of one that is not, `tuner.service.http_limits` counts the bytes."""
OPEN_PATHS = ("/v1/health", "/v1/ready")
AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
"""The whole of a Host header: a name or an address, and a port."""


def problem(status: int, code: str, message: str, hint: str = "") -> JSONResponse:
    """Return a refusal: its code, what and where, and the next step."""
    body = Problem(code=code, message=message, hint=hint)
    return JSONResponse(body.model_dump(), status_code=status)


def refused(error: TuningError) -> JSONResponse:
    """Return an error of the family as the answer it is."""
    status = next(code for kind, code in STATUS if isinstance(error, kind))
    return problem(status, error.code, error.message, error.hint)


class Gate:
    """Refuses foreign Host and Origin headers, oversized bodies, and callers without a token.

    Who comes in is noted in the request's state as `caller`: what it may do its route decides.
    Plain ASGI: a wrapper that reads the stream itself would hide from a long poll that its caller has
    gone.
    """

    def __init__(self, app: ASGIApp, access: Access, token: str, hosts: frozenset[str]) -> None:
        self._app, self._access, self._token = app, access, token.encode()
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason why not."""
        refusal = None
        if scope["type"] == "http":
            request = Request(scope)
            refusal = self._refusal(request) or await self._stranger(request)
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> JSONResponse | None:
        hosts, origin = request.headers.getlist("host"), request.headers.get("origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            called = ", ".join(hosts)
            return problem(400, "host", f"this tuner is not called {called!r}", "use its own name")
        if origin is not None and not self._is_ours(re.sub("^https?://", "", origin)):
            return problem(403, "origin", f"requests from {origin} are not accepted")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            return problem(413, "too_large", f"a message has at most {MOST_BYTES} bytes")
        return None

    async def _stranger(self, request: Request) -> JSONResponse | None:
        # Not by `request.url`: releases of Starlette make that of the Host header.
        if request.scope["path"] in OPEN_PATHS:
            return None
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        try:
            request.state.caller = await self._caller(given)
        except TuningError as error:
            return refused(error)
        return None

    async def _caller(self, given: str) -> Caller:
        if hmac.compare_digest(given.encode(), self._token):
            return ADMIN
        return await run_in_threadpool(self._access.caller, given)

    def _is_ours(self, authority: str) -> bool:
        found = AUTHORITY.fullmatch(authority)
        return found is not None and found[1].strip("[]").lower() in self._hosts
