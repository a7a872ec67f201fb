"""The routes of the table of verbs, of the stream of events, and the roles that may call a route."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from db.history import HistoryRow
from tuner.bounds import bounded
from tuner.core import AccessRole, Caller, Forbidden, RateLimited
from tuner.service.access import Access
from tuner.service.fleet import FleetOverview
from tuner.service.http.bodies import BoundedRoute, ThreadedRoute
from tuner.service.http.feed import Feed, StreamPlaces, unnamed
from tuner.service.http.gate import refused
from tuner.service.metrics.fleet_metrics import Metrics
from tuner.service.operations import Operations
from tuner.verbs.row import Verb, verbs_of
from tuner.verbs.table import TokenVerbs, Verbs
from tuner.wire import Enrolled, Enrolment, Message

NEXT_STEP = {
    AccessRole.VIEWER: "a viewer's token is read-only; use an operator's token",
    AccessRole.OPERATOR: "use an admin's token (the tuner's own token file "
    "has one); reports of an agent need that agent's token",
    AccessRole.GRID: "a grid token may only send events of the grid (POST /v1/events/grid)",
    AccessRole.AGENT: "use an operator's token; create one with `jouletune token create NAME`",
    AccessRole.ENROL: "put this token into the token file of a new agent; it can only enrol",
}
Who = Annotated[str, AfterValidator(bounded)]
"""The author that a message names; the author stored is the name of the caller's token."""
PLAIN: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="strings"))
"""Serialises values that are not messages of `tuner.wire`, such as values of `tuner.core`."""
OTHERS = {
    AccessRole.VIEWER: (AccessRole.VIEWER, AccessRole.OPERATOR),
    AccessRole.OPERATOR: (AccessRole.OPERATOR,),
    AccessRole.GRID: (AccessRole.GRID, AccessRole.OPERATOR),
    AccessRole.ADMIN: (),
}
"""The roles that may call a verb, by the verb's role; the admin may call every verb."""
QUERY_FIELDS = {"who": Who, "why": str}
METRICS = "/metrics"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
MOST_ID = 2**63 - 1
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""For proxies: nginx would otherwise hold a stream back until a whole buffer of it has arrived."""


def only(*roles: AccessRole) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that returns the caller, and refuses every role but these and the admin's."""

    async def check(request: Request) -> Caller:
        """Return the caller. Raises Forbidden: its role may not call the route."""
        caller: Caller = request.state.caller
        if caller.role not in (AccessRole.ADMIN, *roles):
            raise Forbidden(
                f"the {caller.role} token {caller.name} does not allow this",
                hint=NEXT_STEP[caller.role],
            )
        return caller

    return check


FOR_VIEWERS = Depends(only(AccessRole.VIEWER, AccessRole.OPERATOR))
AgentCaller = Annotated[Caller, Depends(only(AccessRole.AGENT))]
EnrollingCaller = Annotated[Caller, Depends(only(AccessRole.ENROL))]


def enrol_routes(access: Access) -> APIRouter:
    """Return the route by which an agent gets its own token."""
    router = APIRouter(route_class=ThreadedRoute)

    @router.post("/enrol")
    def enrol(message: Enrolment, caller: EnrollingCaller) -> Enrolled:
        """Give a new agent its own token, in exchange for an enrolment token."""
        return access.enrol(caller, message)

    return router


def rendered(answer: object, status: int = 200) -> Response:
    """Return a response with a message, with values, or without a body.

    Each message is serialised by its own configuration, which keeps infinite bounds. A union or a list
    would serialise its members by the configuration of the union or list.
    """
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=status)
    return Response(_json(answer), status, media_type="application/json")


def _json(answer: object) -> str | bytes:
    """Return the JSON of a message, a list of messages, or values of `tuner.core`."""
    if isinstance(answer, Message):
        return answer.model_dump_json()
    if isinstance(answer, list) and all(isinstance(one, Message) for one in answer):
        return f"[{','.join(one.model_dump_json() for one in answer)}]"
    return PLAIN.dump_json(answer)


def verb_routes(
    verbs: Iterable[Verb], tag: str, does: Mapping[str, Callable[..., object]]
) -> APIRouter:
    """Return a route for each verb that has a function of its name in `does`."""
    router = APIRouter(tags=[tag], route_class=ThreadedRoute)
    for verb in verbs:
        if verb.name in does:
            router.add_api_route(
                verb.path,
                _endpoint(verb, does[verb.name]),
                methods=[verb.method],
                status_code=verb.status,
                # A history's bounds may be infinite; they are sent as strings.
                response_model=None if verb.answer == list[HistoryRow] else verb.answer,
            )
    return router


def may_ask(verb: Verb) -> Any:  # noqa: ANN401  FastAPI's own
    """Return a dependency that returns the caller, and refuses roles that may not call a verb."""
    return Depends(only(*OTHERS[verb.role]))


def _endpoint(verb: Verb, do: Callable[..., object]) -> Callable[..., Response]:
    """Return the handler of a verb, with the signature that FastAPI reads."""
    apart = {
        name: fields for name, p in verb.takes.items() if (fields := _apart(verb, p.annotation))
    }

    def answer(caller: Caller, **given: Any) -> Response:  # noqa: ANN401  as declared
        for name, parts in apart.items():
            values = {part: given.pop(part) for part in parts}
            given[name] = verb.takes[name].annotation(**values)
        return rendered(do(**{n: _signed(v, caller) for n, v in given.items()}), verb.status)

    asking = Annotated[Caller, may_ask(verb)]
    parameters: dict[str, tuple[Any, Any]] = {"caller": (asking, inspect.Parameter.empty)}
    for name, parameter in verb.takes.items():
        parameters |= apart.get(name) or {name: (parameter.annotation, parameter.default)}
    answer.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
            )
            for name, (kind, default) in parameters.items()
        ]
    )
    answer.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    answer.__name__, answer.__doc__ = verb.name, verb.text
    return answer


def _apart(verb: Verb, kind: Any) -> dict[str, tuple[Any, Any]]:  # noqa: ANN401  a type
    """Return the fields of a parameter that is sent in the query, by name: their types and defaults."""
    if is_dataclass(kind) and not hasattr(kind, "model_fields"):
        types = get_type_hints(kind)
        aware = {name: AwareDatetime | None for name in types if types[name] == datetime | None}
        return {name: (aware.get(name, types[name]), None) for name in types}
    if not verb.bodied and isinstance(kind, type) and issubclass(kind, BaseModel):
        return {
            name: (QUERY_FIELDS[name], kind.model_fields[name].default)
            for name in verb.query_fields
        }
    return {}


def _signed(given: Any, caller: Caller) -> Any:  # noqa: ANN401  as declared
    """Return a value; in a message the author is replaced by the name of the caller's token."""
    if not isinstance(given, Message):
        return given
    who = {"who": caller.name} if "who" in type(given).model_fields else {}
    return given.model_copy(update=who)


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
        entries = feed.follow(since, whole, device)
        caller: Caller = request.state.caller
        return EventStream(unnamed(entries) if plain else entries, places, caller.name)

    return router


def metrics_routes(metrics: Metrics) -> APIRouter:
    """Return the route that Prometheus scrapes, with a viewer's token."""
    router = APIRouter(tags=["health"], dependencies=[FOR_VIEWERS], route_class=BoundedRoute)

    @router.get(METRICS, response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def scrape() -> Response:
        """Return the metrics of the fleet for Prometheus."""
        return Response(metrics.text(), media_type=TEXT)

    return router
