"""The tuner over HTTP: the routes of operators, and the stream of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from tuner.core import Caller, RateLimited
from tuner.service.access import Access
from tuner.service.fleet import FleetOverview
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.feed import EventFilter, Feed, StreamPlaces, unnamed
from tuner.service.http.gate import refused
from tuner.service.http.routes import may_ask, verb_routes
from tuner.service.operations import Operations
from tuner.verbs.row import Verb, verbs_of
from tuner.verbs.table import TokenVerbs, Verbs

MOST_ID = 2**63 - 1
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""For proxies: nginx would otherwise hold a stream back until a whole buffer of it has arrived."""


class EventStream(StreamingResponse):
    """Server-sent events, if a stream may still be opened."""

    media_type = "text/event-stream"

    def __init__(self, entries: AsyncIterator[bytes], places: StreamPlaces, caller: str) -> None:
        super().__init__(entries, headers=UNBUFFERED)
        self._places, self._caller = places, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or the refusal."""
        try:
            with self._places.taken(self._caller):
                await super().__call__(scope, receive, send)
        except RateLimited as error:
            await refused(error)(scope, receive, send)


def operator_routes(
    fleet: FleetOverview, access: Access, feed: Feed, places: StreamPlaces
) -> tuple[APIRouter, ...]:
    """Return the routes of all verbs: of operators, of the event stream, and of the admin's tokens."""
    operations, rows = fleet.operations, verbs_of(Verbs)
    does = {verb.name: getattr(operations, verb.name) for verb in rows if verb.name != "follow"}

    def events(**filters: Any) -> Response:  # noqa: ANN401  as declared
        listed = [
            {**asdict(event), "at": event.at.isoformat()} for event in operations.events(**filters)
        ]
        return Response(json.dumps(listed), media_type="application/json")

    tokens = verbs_of(TokenVerbs)
    return (
        verb_routes(rows, "operators", does | {"fleet": fleet.view, "events": events}),
        _stream_route(next(v for v in rows if v.name == "follow"), operations, feed, places),
        verb_routes(tokens, "access", {verb.name: getattr(access, verb.name) for verb in tokens}),
    )


def _stream_route(
    verb: Verb, operations: Operations, feed: Feed, places: StreamPlaces
) -> APIRouter:
    """Return the route of the stream of events."""
    router = APIRouter(tags=["operators"], dependencies=[may_ask(verb)], route_class=BoundedRoute)

    @router.get(verb.path, response_class=StreamingResponse)
    async def follow(
        request: Request,
        study: str | None = None,
        device: str | None = None,
        after: Annotated[int | None, Query(ge=0, le=MOST_ID)] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=MOST_ID)] = None,
        *,
        plain: bool = False,
    ) -> EventStream:
        """Stream events, after `after` or `Last-Event-ID` if given.

        With `plain` no event has a name, so that a browser receives all of them with one listener.
        """
        since = after if last_event_id is None else last_event_id
        whole = await run_in_threadpool(operations.full_id, study) if study else study
        entries = feed.follow(EventFilter(whole, device), since)
        caller: Caller = request.state.caller
        return EventStream(unnamed(entries) if plain else entries, places, caller.name)

    return router
