"""The tuner over HTTP: parse, call, render. Every route but health needs a bearer token."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.core import (
    Busy,
    InvalidInput,
    TuningError,
    first_fault,
)
from tuner.service.access import Access
from tuner.service.clock.liveness import Readiness
from tuner.service.fleet import FleetOverview
from tuner.service.http.bodies import BoundedRoute, ThreadedRoute
from tuner.service.http.feed import Feed, StreamPlaces
from tuner.service.http.gate import API, Gate, problem, refused
from tuner.service.http.routes import (
    METRICS,
    AgentCaller,
    enrol_routes,
    metrics_routes,
    operator_routes,
)
from tuner.service.http.routes import rendered as _one
from tuner.service.http.sessions import Sessions
from tuner.service.http.waiting import (
    HeldWindows,
    LongPoll,
    Queue,
    Recall,
    SendAway,
    Turns,
    Waiters,
    ask_again,
)
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import Metrics
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.wire import (
    PROTOCOL,
    BudgetOrder,
    BudgetReport,
    HoldOrder,
    HoldReport,
    Idle,
    Order,
    Poll,
    Problem,
    Receipt,
    Registered,
    Registration,
    Release,
    Renewal,
    Reverted,
    StepReport,
    TrialReport,
)

REFUSALS: dict[int | str, str] = {
    400: "The body is not JSON, or the Host header is not the tuner's.",
    401: "The token is missing or not valid.",
    403: "The token does not allow this.",
    404: "Not found.",
    405: "The method is not allowed here.",
    409: "The current state does not allow this.",
    413: "The body is too large.",
    422: "The input is not valid.",
    426: "The protocol version is not supported.",
    429: "Rate limit exceeded for this token or this address.",
    503: "The database does not answer, or the tuner is overloaded.",
}
MOST_RUNNING = 20_000
"""The default for the most connections that are answered at once."""
OPENAPI = "/v1/openapi.json"
LOOK_AGAIN_S = 5.0
"""News wakes waiting requests; a change by time alone (a lease ends) is seen within this time."""


def create_app(
    operations: Operations,
    token: str,
    hosts: frozenset[str],
    version: str,
    leaving: Callable[[], bool] = lambda: False,
    *,
    client_certs: bool = False,
    fleet: FleetOverview | None = None,
    metrics: Metrics | None = None,
    counts: Counts | None = None,
    most_running: int = MOST_RUNNING,
    pages: Callable[[Sessions], ASGIApp] | None = None,
) -> ASGIApp:
    """Return the application. `token` is the admin's, `hosts` are the names that the tuner answers to.

    `pages` makes the pages for browsers, outside `/v1/`. With `client_certs` an agent needs a certificate
    that the server's TLS has checked. `metrics` answers Prometheus at `/metrics`; without it there is no
    such route. `counts` counts refusals that are not stored. Of the `most_running` connections that are
    answered, one token may use half, and event streams a quarter. Once `leaving` returns true, because
    the server is about to end, waiting requests are answered.
    """
    waiting = Waiters(operations.loop.news, leaving)
    feed = Feed(operations.loop.store.events, operations.loop.now, lambda: waiting.over)
    waiting.at_end.append(feed.wake)
    operations.loop.store.bus.subscribe(feed.on_notice)
    app = FastAPI(
        title="jouletune",
        version=version,
        lifespan=lambda _: waiting.watch(),
        description="Uses the least energy that keeps the operator's limits.",
        openapi_url=None,  # FastAPI would render it in the event loop
        responses={
            status: {"model": Problem, "description": why} for status, why in REFUSALS.items()
        },
    )
    _install_errors(app)
    access = operations.access.remember()
    sessions = Sessions(access, token, operations.loop.now)
    if pages is not None:
        app.add_middleware(BesideApi, pages=pages(sessions))
    queue = Queue()
    app.add_middleware(Turns, queue=queue)
    app.add_middleware(
        Gate,
        access=access,
        token=token,
        sessions=sessions,
        hosts=hosts,
        client_certs=client_certs,
        counts=counts,
        at_once=max(1, most_running // 2),
    )
    _describe(app)
    app.include_router(_health_routes(operations, version), prefix="/v1")
    app.include_router(enrol_routes(access), prefix="/v1", tags=["agents"])
    presence = operations.loop.presence

    def sent_away() -> Busy:
        """Count a refused agent and return the refusal."""
        presence.sent_away()
        return queue.busy()

    held = HeldWindows(operations.loop, access, sent_away)
    app.include_router(_agent_routes(operations, access, held), prefix="/v1", tags=["agents"])
    overview = fleet or FleetOverview(operations, Summaries(operations))
    for router in operator_routes(overview, access, feed, StreamPlaces(most_running // 4)):
        app.include_router(router)
    if metrics is not None:
        app.include_router(metrics_routes(metrics))
    # Outside FastAPI's layers, too, so that none of them is kept in memory for a waiting request.
    return SendAway(LongPoll(app, waiting), queue, presence.sent_away)


def _describe(app: FastAPI) -> None:
    """Add the routes of the API's description and of a page that shows it."""

    @functools.cache
    def text() -> bytes:
        return json.dumps(app.openapi()).encode()

    @app.get(OPENAPI, include_in_schema=False)
    def openapi() -> Response:
        return Response(text(), media_type="application/json")

    @app.get("/v1/docs", include_in_schema=False)
    def docs() -> Response:
        return get_swagger_ui_html(openapi_url=OPENAPI, title=app.title)


class BesideApi:
    """Passes requests outside the API and `/metrics` to the pages. Plain ASGI."""

    def __init__(self, app: ASGIApp, pages: ASGIApp) -> None:
        self._app, self._pages = app, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the API or to the pages."""
        api = scope["type"] != "http" or f"{scope['path']}/".startswith((API, f"{METRICS}/"))
        await (self._app if api else self._pages)(scope, receive, send)


def _install_errors(app: FastAPI) -> None:
    """Answer every `TuningError` with its code, and malformed input with the place of the fault."""

    @app.exception_handler(TuningError)
    def family(_: Request, error: TuningError) -> JSONResponse:
        return refused(error)

    @app.exception_handler(RequestValidationError)
    def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if isinstance(inner := first.get("ctx", {}).get("error"), TuningError):
            return problem(422, inner.code, inner.message, inner.hint)
        broken = first["type"] in ("json_invalid", "model_attributes_type", "model_type")
        return problem(
            400 if broken else 422,
            "malformed" if broken else InvalidInput.code,
            first_fault(error),
            "see /v1/openapi.json for the expected format",
        )

    @app.exception_handler(HTTPException)
    def unroutable(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, "http", str(error.detail), "see /v1/openapi.json")


def _health_routes(operations: Operations, version: str) -> APIRouter:
    """Return the routes `/health` and `/ready`, which need no token."""
    router = APIRouter(tags=["health"], route_class=BoundedRoute)

    readiness = Readiness(operations.loop.store.check_writable)

    # Async, so that /health answers even while all worker threads wait for the database.
    @router.get("/health")
    async def health() -> dict[str, str | int]:
        """Report that the process is alive, with its release and its protocol version."""
        return {"status": "ok", "version": version, "protocol": PROTOCOL}

    @router.get("/ready")
    async def ready() -> dict[str, str | bool]:
        """Report that the database takes writes, and whether every device is stopped."""
        await readiness.prove()
        stop = await run_in_threadpool(operations.stop_state)
        return {"status": "ready", "stopped": stop.in_force}

    return router


def _agent_routes(operations: Operations, access: Access, held: HeldWindows) -> APIRouter:
    """Return the routes of agents."""
    router = APIRouter(route_class=ThreadedRoute)
    loop = operations.loop

    @router.put("/devices/{device}", response_model=Registered)
    def register(device: str, message: Registration, caller: AgentCaller) -> Response:
        """Register a device."""
        if message.device.id != device:
            raise InvalidInput(
                f"the path names {device!r}, the message names {message.device.id!r}"
            )
        return _one(loop.register(access.claimed(caller, message.device)))

    @router.post("/devices/{device}/next", response_model=Order)
    def order(device: str, message: Poll, request: Request, caller: AgentCaller) -> Response:
        """Return the next order; wait up to `wait_s` for news."""
        access.require_own(caller, device)
        mark = loop.news.mark(device)
        answer = loop.order(device, message)
        if message.wait_s > 0.0 and not _is_news(answer, message):
            loop.presence.note_contact(device, message.wait_s)
            look_again_s = LOOK_AGAIN_S if isinstance(answer, Idle) else message.wait_s
            on_disconnect = partial(loop.presence.note_contact, device)
            ask_again(request, Recall(device, mark, message.wait_s, look_again_s, on_disconnect))
        return _one(answer)

    @router.post("/devices/{device}/budget", response_model=BudgetOrder)
    def budget(
        device: str, message: BudgetReport, request: Request, caller: AgentCaller
    ) -> Response:
        """Report the caps of a device that can join a budget; wait for other caps."""
        access.require_own(caller, device)
        mark = loop.news.mark(device)
        answer = operations.divider.answer(device, message)
        if message.wait_s > 0.0 and answer.kind == "none":
            ask_again(request, Recall(device, mark, message.wait_s, message.wait_s, lambda: None))
        return _one(answer)

    @router.post("/trials/renew", response_model=Registered)
    def renew(message: Renewal, caller: AgentCaller) -> Response:
        """Renew a lease."""
        access.require_own(caller, message.device)
        return _one(loop.renew(message))

    @router.post("/trials/report", response_model=Receipt)
    def report(message: TrialReport, caller: AgentCaller) -> Response:
        """Report the outcome of an attempt at a trial."""
        access.require_own(caller, message.device)
        return _one(loop.trial_reports.record(message))

    @router.post("/trials/step", response_model=Receipt)
    def step(message: StepReport, caller: AgentCaller) -> Response:
        """Report a step of a continuous study that the agent made on its own."""
        access.require_own(caller, message.device)
        return _one(loop.trial_reports.own_step(message))

    @router.post("/reverts", response_model=Receipt)
    def reverted(message: Reverted, caller: AgentCaller) -> Response:
        """Report that an operator reverted a device on its host."""
        access.require_own(caller, message.device)
        return _one(operations.reverted(message))

    @router.post("/holds/report", response_model=Receipt)
    async def hold_report(message: HoldReport, caller: AgentCaller) -> Response:
        """Report a window of a hold, or its end."""
        return _one(await held.report(caller, message))

    return router


def _is_news(answer: Order, poll: Poll) -> bool:
    """Return whether an answer differs from the agent's present state."""
    if isinstance(answer, HoldOrder):
        return (answer.study, answer.revision) != (poll.holding, poll.revision)
    if isinstance(answer, Release):
        return bool(poll.holding) or poll.applied.level != "original"
    return answer.kind == "trial"
