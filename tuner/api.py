"""The tuner over HTTP: parse, call, render. Everything but health needs the bearer token."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from db.history import Question
from tuner.core import (
    Conflict,
    InvalidInput,
    MeasurementError,
    NotFound,
    ProtocolMismatch,
    StoreError,
    TrialState,
    TuningError,
    Unauthorised,
    Verdict,
)
from tuner.operations import ROWS, Operations
from tuner.wire import (
    PROTOCOL,
    Change,
    ConstraintChange,
    DeviceView,
    HoldOrder,
    HoldReport,
    Idle,
    Message,
    Order,
    Poll,
    Problem,
    Receipt,
    Registered,
    Registration,
    Release,
    Renewal,
    Reverted,
    RevisionView,
    SettingView,
    StudyDraft,
    StudyReport,
    StudyView,
    TrialReport,
    TrialView,
    check_protocol,
)

STATUS: tuple[tuple[type[TuningError], int], ...] = (
    (ProtocolMismatch, 426),
    (Unauthorised, 401),
    (NotFound, 404),
    (Conflict, 409),
    (InvalidInput, 422),
    (MeasurementError, 422),
    (StoreError, 503),
    (TuningError, 500),
)
LOOK_AGAIN_S = 0.5
MOST_BYTES = 8 * 1024 * 1024
OPEN_PATHS = ("/v1/health", "/v1/ready")


def create_app(
    operations: Operations,
    token: str,
    hosts: frozenset[str],
    version: str,
    leaving: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """Return the application. `hosts` are the names it answers to, against DNS rebinding.

    Once `leaving` says that the server is about to end, whoever waits for news is answered.
    """
    app = FastAPI(
        title="jouletune",
        version=version,
        description="Least energy while the operator's limits hold.",
        openapi_url="/v1/openapi.json",
        docs_url="/v1/docs",
    )
    _install_errors(app)
    app.add_middleware(Gate, token=token, hosts=hosts)
    app.include_router(_health_routes(operations, version), prefix="/v1")
    app.include_router(_agent_routes(operations, leaving), prefix="/v1", tags=["agents"])
    app.include_router(_study_routes(operations), prefix="/v1", tags=["studies"])
    app.include_router(_result_routes(operations), prefix="/v1", tags=["questions"])
    app.include_router(_fleet_routes(operations), prefix="/v1", tags=["questions"])
    return app


def _problem(status: int, code: str, message: str, hint: str = "") -> JSONResponse:
    body = Problem(code=code, message=message, hint=hint)
    return JSONResponse(body.model_dump(), status_code=status)


def _install_errors(app: FastAPI) -> None:
    """Answer every error of the family with its code, and malformed input with where it is wrong."""

    @app.exception_handler(TuningError)
    def refused(_: Request, error: TuningError) -> JSONResponse:
        status = next(code for kind, code in STATUS if isinstance(error, kind))
        return _problem(status, error.code, error.message, error.hint)

    @app.exception_handler(RequestValidationError)
    def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if isinstance(inner := first.get("ctx", {}).get("error"), TuningError):
            return _problem(422, inner.code, inner.message, inner.hint)
        where = ".".join(str(part) for part in first["loc"]) or "body"
        broken = first["type"] in ("json_invalid", "model_attributes_type")
        return _problem(
            400 if broken else 422,
            "malformed" if broken else InvalidInput.code,
            f"{where}: {first['msg']}",
            "see /v1/openapi.json for what is expected",
        )

    @app.exception_handler(HTTPException)
    def unroutable(_: Request, error: HTTPException) -> JSONResponse:
        return _problem(error.status_code, "http", str(error.detail), "see /v1/openapi.json")


class Gate:
    """Refuses foreign Host and Origin headers, oversized bodies, and callers without the token.

    Plain ASGI: a wrapper that reads the stream itself would hide from a long poll that its caller has
    gone.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason why not."""
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> JSONResponse | None:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        origin = request.headers.get("origin")
        if host not in self._hosts:
            return _problem(400, "host", f"this tuner is not called {host!r}", "use its own name")
        if origin is not None and (urlsplit(origin).hostname or "") not in self._hosts:
            return _problem(403, "origin", f"requests from {origin} are not accepted")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            return _problem(413, "too_large", f"a message has at most {MOST_BYTES} bytes")
        if request.url.path in OPEN_PATHS:
            return None
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return None
        return _problem(
            401,
            Unauthorised.code,
            "the bearer token is wrong" if given else "the bearer token is missing",
            "send the content of the tuner's token file as Authorization: Bearer …",
        )


def _health_routes(operations: Operations, version: str) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/health")
    def health() -> dict[str, str | int]:
        """Say that the process lives, and what it speaks."""
        return {"status": "ok", "version": version, "protocol": PROTOCOL}

    @router.get("/ready")
    def ready() -> dict[str, str]:
        """Say that the database answers, too."""
        operations.loop.store.ping()
        return {"status": "ready"}

    return router


def _one(message: Message, status: int = 200) -> Response:
    """Render a message by its own configuration, not a union's or list's: it keeps infinite bounds."""
    return Response(message.model_dump_json(), status, media_type="application/json")


def _many(messages: Sequence[Message]) -> Response:
    body = ",".join(m.model_dump_json() for m in messages)
    return Response(f"[{body}]", media_type="application/json")


def _spoken(message: Message) -> None:
    check_protocol(message.protocol)


def _agent_routes(operations: Operations, leaving: Callable[[], bool]) -> APIRouter:
    router = APIRouter()
    loop = operations.loop

    @router.put("/devices/{device}", response_model=Registered)
    def register(device: str, message: Registration) -> Response:
        """Introduce a device."""
        _spoken(message)
        if message.device.id != device:
            raise InvalidInput(f"the path says {device!r}, the message {message.device.id!r}")
        return _one(loop.register(message.device))

    @router.post("/devices/{device}/next", response_model=Order)
    async def order(device: str, message: Poll, request: Request) -> Response:
        """Ask what to do now; wait for news as long as the caller likes."""
        _spoken(message)
        deadline = asyncio.get_running_loop().time() + message.wait_s
        while True:
            answer = await run_in_threadpool(loop.order, device, message)
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0.0 or leaving() or _is_news(answer, message):
                return _one(answer)
            if await request.is_disconnected():  # nobody would get a trial we hand out now
                return _one(Idle(why="the caller is gone"))
            await asyncio.sleep(min(left, LOOK_AGAIN_S))

    @router.post("/trials/renew", response_model=Registered)
    def renew(message: Renewal) -> Response:
        """Keep a lease alive."""
        _spoken(message)
        return _one(loop.renew(message))

    @router.post("/trials/report", response_model=Receipt)
    def report(message: TrialReport) -> Response:
        """Tell how an attempt ended."""
        _spoken(message)
        return _one(loop.record(message))

    @router.post("/reverts", response_model=Receipt)
    def reverted(message: Reverted) -> Response:
        """Tell that an operator put a device back on its host."""
        _spoken(message)
        return _one(operations.reverted(message))

    @router.post("/holds/report", response_model=Receipt)
    def hold_report(message: HoldReport) -> Response:
        """Tell what a hold shows, or that it ended."""
        _spoken(message)
        return _one(loop.observe(message))

    return router


def _is_news(answer: Order, poll: Poll) -> bool:
    """Return whether an answer differs from what the agent is doing already."""
    if isinstance(answer, HoldOrder):
        return (answer.study, answer.revision) != (poll.holding, poll.revision)
    if isinstance(answer, Release):
        return bool(poll.holding) or poll.applied.level != "original"
    return answer.kind == "trial"


def _study_routes(operations: Operations) -> APIRouter:
    router = APIRouter(prefix="/studies")

    @router.post("", status_code=201, response_model=StudyView)
    def create(draft: StudyDraft) -> Response:
        """Create a study."""
        _spoken(draft)
        return _one(operations.create(draft), 201)

    @router.get("", response_model=list[StudyView])
    def studies() -> Response:
        """List all studies."""
        return _many(operations.studies())

    @router.get("/{study}", response_model=StudyView)
    def study(study: str) -> Response:
        """Show one study."""
        return _one(operations.study(study))

    @router.delete("/{study}", status_code=204)
    def delete(study: str, who: str = "operator") -> None:
        """Delete a stopped study with all it measured."""
        operations.delete(study, Change(who=who))

    verbs: Mapping[str, Callable[[str, Change], StudyView]] = {
        "pause": operations.pause,
        "resume": operations.resume,
        "stop": operations.stop,
    }
    for name, verb in verbs.items():
        router.add_api_route(
            f"/{{study}}/{name}",
            _changing(verb),
            methods=["POST"],
            name=name,
            summary=name.title(),
            response_model=StudyView,
        )

    @router.put("/{study}/constraints", response_model=StudyView)
    def constraints(study: str, change: ConstraintChange) -> Response:
        """Replace a study's constraints; its history is judged anew."""
        return _one(operations.set_constraints(study, change))

    return router


def _changing(verb: Callable[[str, Change], StudyView]) -> Callable[[str, Change], Response]:
    def change_study(study: str, change: Change) -> Response:
        _spoken(change)
        return _one(verb(study, change))

    return change_study


def _result_routes(operations: Operations) -> APIRouter:
    """Return what is asked of one study: how it came about, what it tried and what it found."""
    router = APIRouter(prefix="/studies/{study}")

    @router.get("/revisions", response_model=list[RevisionView])
    def revisions(study: str) -> Response:
        """Tell who changed the study, when and why."""
        return _many(operations.revisions(study))

    @router.get("/trials", response_model=list[TrialView])
    def trials(study: str) -> Response:
        """List the study's trials."""
        return _many(operations.trials(study))

    @router.get("/best", response_model=SettingView)
    def best(study: str) -> Response:
        """Show what is held, or the best feasible setting measured."""
        return _one(operations.best(study))

    @router.get("/pareto", response_model=list[SettingView])
    def pareto(study: str) -> Response:
        """List the settings that none other beats in objective and constraints at once."""
        return _many(operations.pareto(study))

    @router.get("/report", response_model=StudyReport)
    def report(study: str) -> Response:
        """Report what the study gained and cost."""
        return _one(operations.report(study))

    return router


def _fleet_routes(operations: Operations) -> APIRouter:
    """Return what is asked over all studies: devices, events and history."""
    router = APIRouter()

    @router.get("/devices", response_model=list[DeviceView])
    def devices() -> Response:
        """List devices."""
        return _many(operations.devices())

    @router.get("/events")
    def events(
        study: str | None = None,
        device: str | None = None,
        last: Annotated[int, Query(ge=1, le=10_000)] = 100,
    ) -> list[dict[str, Any]]:
        """List the latest events."""
        return [
            {**asdict(event), "at": event.at.isoformat()}
            for event in operations.events(study, device, last)
        ]

    @router.get("/history")
    def ask(
        device: str | None = None,
        workload: str | None = None,
        study: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        verdict: Verdict | None = None,
        state: TrialState | None = None,
    ) -> Response:
        """List trials across studies."""
        question = Question(
            device=device,
            workload=workload,
            study=study,
            since=since,
            until=until,
            verdict=verdict,
            state=state,
        )
        return Response(ROWS.dump_json(operations.history(question)), media_type="application/json")

    return router
