"""Admission of requests: authentication, rate limits, refusals and the audit log."""

from __future__ import annotations

import hmac
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as ASGIMessage

from tuner.bounds import visible
from tuner.core import (
    AuditEntry,
    Busy,
    Caller,
    Conflict,
    Forbidden,
    InvalidInput,
    MeasurementError,
    NotFound,
    ProtocolMismatch,
    RateLimited,
    StoreError,
    TooLarge,
    TuningError,
    Unauthorised,
)
from tuner.service.access import ADMIN, Access, no_token
from tuner.service.http.bodies import is_open, most_bytes, received, too_large
from tuner.service.http.sessions import COOKIE, RateLimit, Sessions
from tuner.service.metrics.counts import Counts
from tuner.wire import Problem

log = logging.getLogger(__name__)

STATUS: tuple[tuple[type[TuningError], int], ...] = (
    (ProtocolMismatch, 426),
    (Forbidden, 403),
    (Unauthorised, 401),
    (NotFound, 404),
    (Conflict, 409),
    (TooLarge, 413),
    (InvalidInput, 422),
    (MeasurementError, 422),
    (RateLimited, 429),
    (Busy, 503),
    (StoreError, 503),
    (TuningError, 500),
)
MOST_PATH = 500
MOST_DIGITS = 15
"""The most digits of a Content-Length: Python is slow to read long numbers."""
DAY_S = 86_400.0
REQUESTS_PER_S, REQUESTS_AT_ONCE = 100.0, 500.0
"""Requests per token: an agent of many devices, or a page that shows them, stays far below."""
AGENT_BYTES_A_DAY = 256.0 * 1024 * 1024
"""Bytes per agent's token: the hold windows of 16 devices, one a minute, take a quarter of it."""
STORED_PER_S, STORED_AT_ONCE = 1.0, 100.0
"""Refusals of one token that the audit log stores; further refusals are only counted."""
AT_ONCE = 10_000
"""The most requests of one token in progress, unless the server has fewer connections."""
API = "/v1/"
LOOKING = ("GET", "HEAD", "OPTIONS")
AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
"""A whole Host header: a name or an address, and a port."""


def problem(status: int, code: str, message: str, hint: str = "") -> JSONResponse:
    """Return a refusal: its code, a message with cause and place, and a next step."""
    body = Problem(code=code, message=message, hint=hint)
    return JSONResponse(body.model_dump(), status_code=status)


def status_of(error: TuningError) -> int:
    """Return the HTTP status of an error."""
    return next(code for kind, code in STATUS if isinstance(error, kind))


def refused(error: TuningError) -> JSONResponse:
    """Return an error as its HTTP response."""
    status = status_of(error)
    answer = problem(status, error.code, error.message, error.hint)
    if isinstance(error, RateLimited | Busy):
        answer.headers["Retry-After"] = str(math.ceil(error.again_s))
    return answer


class Gate:
    """Refuses foreign Host and Origin headers, oversized bodies, floods, and callers without a token.

    An admitted caller is stored in the request's state as `caller`; the route checks its role. Every
    change by a person and every refusal of a valid token is written to the audit log before it is
    answered. Refusals of callers without one are only counted, because anybody can cause them.

    A valid token is looked up first, and never refused because of wrong tokens from its address. At most
    `at_once` requests of one token are in progress. Plain ASGI: after the body the connection is still
    read, so that a long poll notices that its caller has disconnected.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        token: str,
        sessions: Sessions,
        hosts: frozenset[str],
        client_certs: bool = False,
        counts: Counts | None = None,
        at_once: int = AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._access, self._token = app, access, token.encode()
        self._sessions = sessions
        self._hosts = frozenset(host.lower() for host in hosts)
        self._client_certs = client_certs
        self._requests = RateLimit(REQUESTS_PER_S, REQUESTS_AT_ONCE, clock)
        self._bytes = RateLimit(AGENT_BYTES_A_DAY / DAY_S, AGENT_BYTES_A_DAY, clock)
        self._stored = RateLimit(STORED_PER_S, STORED_AT_ONCE, clock)
        self._failed = sessions.failed
        self._counts = counts
        self._at_once = at_once
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with its refusal."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        send = self._audited(request, send)
        refusal = self._refusal(request) or await self._stranger(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            with self._counted(request):
                receive, size = await received(receive, most_bytes(scope))
                self._take_bytes(request, size)
                await self._app(scope, receive, send)
        except (TooLarge, RateLimited, Busy) as error:  # the application answers its own errors
            await refused(error)(scope, receive, send)

    @contextmanager
    def _counted(self, request: Request) -> Iterator[None]:
        """Count a token's request as in progress. Raises Busy: there are too many."""
        caller: Caller | None = getattr(request.state, "caller", None)
        name = caller.name if caller else ""
        if caller and self._under_way[name] >= self._at_once:
            raise Busy(
                f"{self._at_once} requests of the token {name} are in progress",
                hint="wait for a response, or use another token",
            )
        self._under_way[name] += 1
        try:
            yield
        finally:
            self._under_way[name] -= 1
            if not self._under_way[name]:
                del self._under_way[name]

    def _take_bytes(self, request: Request, size: int) -> None:
        """Count the bytes that an agent sends. Raises RateLimited: they exceed its limit for a day."""
        caller: Caller | None = getattr(request.state, "caller", None)
        if caller is None or not caller.machine:
            return
        if again_s := self._bytes.take(caller.name, float(size)):
            raise RateLimited(
                f"the agent {caller.name} sends more than {AGENT_BYTES_A_DAY:.0f} bytes a day",
                hint="check its log; if the host is no longer yours, revoke its token",
                again_s=again_s,
            )

    def _refusal(self, request: Request) -> JSONResponse | None:
        """Return the refusal of a foreign Host or Origin or an oversized body, else None."""
        hosts, origin = request.headers.getlist("host"), request.headers.get("origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            called = ", ".join(hosts)
            return problem(
                400, "host", f"host {called!r} is not allowed", "add it to `names` in tuner.toml"
            )
        if origin is not None and not self._is_ours(re.sub("^https?://", "", origin)):
            return problem(403, "origin", f"requests from {origin} are not accepted")
        length, most = request.headers.get("content-length", "0"), most_bytes(request.scope)
        if not length.isdecimal() or len(length) > MOST_DIGITS or int(length) > most:
            return refused(too_large(most))
        return None

    async def _stranger(self, request: Request) -> Response | None:
        """Store the caller in the request's state; return the refusal of a caller that is not admitted."""
        # Not `request.url`: some releases of Starlette build it from the Host header.
        if is_open(request.scope["path"]):
            return None
        if _is_browser(request) and not _shows_anything(request):
            return _to_sign_in(request)  # no token to check or to count as wrong
        try:
            caller = await self._caller(request)
            if self._client_certs and caller.machine and not _shows_certificate(request):
                raise Forbidden(
                    f"the agent {caller.name} sent no client certificate, and this tuner requires one",
                    hint="set client_cert and client_key in agent.toml",
                )
            if again_s := self._requests.take(caller.name):
                raise _too_many(f"the token {caller.name}", again_s)
        except Unauthorised as error:
            return _to_sign_in(request) if _is_browser(request) else refused(error)
        except TuningError as error:
            return refused(error)
        request.state.caller = caller
        return None

    async def _caller(self, request: Request) -> Caller:
        """Return the caller by token or session. Raises Unauthorised, RateLimited, Forbidden, Busy."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self._token):
            return ADMIN
        cookie = request.cookies.get(COOKIE, "")
        if cookie and not given:
            return await run_in_threadpool(self._signed_in, request, cookie)
        if (caller := self._access.remembered(given)) is not None:
            return caller
        try:
            if not given:
                raise no_token()
            return await self._sessions.lookups.run(self._access.caller, given)
        except Unauthorised:
            address = _address(request)
            if again_s := self._failed.take(address):
                raise _too_many(f"the address {address}, with no valid token,", again_s) from None
            raise

    def _signed_in(self, request: Request, cookie: str) -> Caller:
        """Return the caller of a browser's session, which may only read the API."""
        caller = self._sessions.caller(cookie)
        if request.scope["path"].startswith(API) and request.method not in LOOKING:
            raise Forbidden(
                "a browser session is read-only on the API",
                hint="use the pages, or send a token as Authorization: Bearer …",
            )
        return caller

    def _audited(self, request: Request, send: Send) -> Send:
        """Return a `send` that first writes the request to the audit log, if it belongs there."""

        async def send_audited(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                caller: Caller | None = getattr(request.state, "caller", None)
                status: int = message["status"]
                if caller is None and status >= 400 and self._counts is not None:
                    self._counts.refused(status)
                if caller is not None and self._is_for_audit(request.method, caller, status):
                    await run_in_threadpool(self._note, request, caller, status)
            await send(message)

        return send_audited

    def _is_for_audit(self, method: str, caller: Caller, status: int) -> bool:
        """Return whether the audit log stores a request: a person's change, or a refusal within the rate.

        The work of agents is stored in their trials.
        """
        if status in (401, 403) or (status >= 400 and not caller.machine and method not in LOOKING):
            if self._stored.take(caller.name) == 0.0:
                return True
            if self._counts is not None:
                self._counts.refused(status)
            return False
        return not caller.machine and method not in LOOKING

    def _note(self, request: Request, caller: Caller, status: int) -> None:
        """Write a request and its status to the audit log."""
        try:
            self._access.store.audit.add(
                AuditEntry(
                    at=self._access.now(),
                    who=caller.name,
                    role=caller.role,
                    address=_address(request),
                    method=request.method,
                    path=visible(request.scope["path"][:MOST_PATH]),
                    status=status,
                )
            )
        except TuningError as error:  # the request was already carried out or refused
            log.error("event=audit_missed method=%s status=%s: %s", request.method, status, error)

    def _is_ours(self, authority: str) -> bool:
        """Return whether a Host or Origin names this tuner."""
        match = AUTHORITY.fullmatch(authority)
        return match is not None and match[1].strip("[]").removesuffix(".").lower() in self._hosts


def _is_browser(request: Request) -> bool:
    """Return whether the request is for a page."""
    accepted = request.headers.get("accept", "")
    return "text/html" in accepted and not request.scope["path"].startswith(API)


def _shows_anything(request: Request) -> bool:
    """Return whether a request carries a token or a session."""
    return "authorization" in request.headers or COOKIE in request.cookies


def _to_sign_in(request: Request) -> Response:
    """Redirect a browser to the sign-in page, which returns it to this page."""
    back = request.scope["path"] if request.method == "GET" else "/"
    return RedirectResponse(f"/login?{urlencode({'next': back})}", status_code=303)


def _shows_certificate(request: Request) -> bool:
    """Return whether the connection has a checked client certificate."""
    return "tls" in request.scope.get("extensions", {})


def _address(request: Request) -> str:
    """Return the IP address of a caller; empty if it is unknown."""
    return request.client.host if request.client else ""


def _too_many(client: str, again_s: float) -> RateLimited:
    """Return the refusal of a client over its rate limit."""
    return RateLimited(
        f"rate limit exceeded by {client}", hint=f"retry in {math.ceil(again_s)} s", again_s=again_s
    )
