"""The tuner over HTTP: what concerns all devices and studies at once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from db.history import HistoryQuestion
from tuner.core import Caller, RateLimited, TrialState, Verdict
from tuner.service.access_routes import OperatorCaller, signed
from tuner.service.answers import many, one
from tuner.service.bodies import ThreadedRoute
from tuner.service.feed import EventFilter, Feed, StreamPlaces, unnamed
from tuner.service.fleet import FleetOverview
from tuner.service.gate import refused
from tuner.service.operations import ROWS
from tuner.wire import Change, DeviceView, FleetView, ReplicaView, StopView, check_protocol

MOST_ID = 2**63 - 1
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""For proxies: nginx would keep a stream until it has a whole buffer of it."""


class EventStream(StreamingResponse):
    """Server-sent events, where there is a place for them."""

    media_type = "text/event-stream"

    def __init__(self, entries: AsyncIterator[bytes], places: StreamPlaces, caller: str) -> None:
        super().__init__(entries, headers=UNBUFFERED)
        self._places, self._caller = places, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream, or say why not."""
        try:
            with self._places.taken(self._caller):
                await super().__call__(scope, receive, send)
        except RateLimited as error:
            await refused(error)(scope, receive, send)


def fleet_routes(fleet: FleetOverview, feed: Feed, places: StreamPlaces) -> APIRouter:
    """Return what is asked of the whole fleet: devices, the order to stop, events and history."""
    router, operations = APIRouter(route_class=ThreadedRoute), fleet.operations

    @router.get("/fleet", response_model=FleetView)
    def at_a_glance() -> Response:
        """Tell how every device stands, and what was saved so far."""
        return one(fleet.view())

    @router.get("/devices", response_model=list[DeviceView])
    def devices() -> Response:
        """List devices."""
        return many(operations.devices())

    @router.get("/replicas", response_model=list[ReplicaView])
    def replicas() -> Response:
        """List the tuners that work on this database."""
        return many(operations.replicas())

    @router.delete("/devices/{device}", status_code=204)
    def forget(device: str, caller: OperatorCaller, who: str = "operator") -> None:
        """Forget a device that is offline and in no active study."""
        operations.forget(device, signed(Change(who=who), caller))

    @router.get("/stop", response_model=StopView)
    def stop_state() -> Response:
        """Say whether every device is stopped, and which are back at their original settings."""
        return one(operations.stop_state())

    @router.post("/stop", response_model=StopView)
    def stop_all(change: Change, caller: OperatorCaller) -> Response:
        """Put every device back to its original setting, until it is lifted."""
        check_protocol(change.protocol)
        return one(operations.stop_all(signed(change, caller)))

    @router.delete("/stop", response_model=StopView)
    def lift(caller: OperatorCaller, who: str = "operator", why: str = "") -> Response:
        """Let the studies go on as they were."""
        return one(operations.lift(signed(Change(who=who, why=why), caller)))

    @router.get("/events", response_model=list[dict[str, Any]])
    def events(
        study: str | None = None,
        device: str | None = None,
        last: Annotated[int, Query(ge=1, le=10_000)] = 100,
        after: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        """List the latest events; with `after` the first ones after that."""
        rows = [
            {**asdict(event), "at": event.at.isoformat()}
            for event in operations.events(study, device, last, after)
        ]
        return Response(json.dumps(rows), media_type="application/json")

    @router.get("/events/stream", response_class=StreamingResponse)
    async def stream(
        request: Request,
        study: str | None = None,
        device: str | None = None,
        after: Annotated[int | None, Query(ge=0, le=MOST_ID)] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=MOST_ID)] = None,
        *,
        plain: bool = False,
    ) -> EventStream:
        """Follow events as they come, from `after` or `Last-Event-ID` on where one is given.

        With `plain` none has a name, so that a browser hears all of them by one listener.
        """
        known = after if last_event_id is None else last_event_id
        whole = await run_in_threadpool(operations.full_id, study) if study else study
        entries = feed.follow(EventFilter(whole, device), known)
        caller: Caller = request.state.caller
        return EventStream(unnamed(entries) if plain else entries, places, caller.name)

    @router.get("/history")
    def ask(
        device: str | None = None,
        workload: str | None = None,
        study: str | None = None,
        since: AwareDatetime | None = None,
        until: AwareDatetime | None = None,
        verdict: Verdict | None = None,
        state: TrialState | None = None,
        last: Annotated[int | None, Query(ge=1, le=10_000)] = None,
        skip: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """List trials across studies, by start; with `last` the latest, latest first, but for `skip`."""
        question = HistoryQuestion(
            device=device,
            workload=workload,
            study=study,
            since=since,
            until=until,
            verdict=verdict,
            state=state,
        )
        rows = operations.history(question, last, skip)
        return Response(ROWS.dump_json(rows), media_type="application/json")

    return router
