"""The routes of the table of verbs: parse the request, check the role, call the verb, render the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from datetime import datetime
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Depends, Response
from pydantic import AwareDatetime, BaseModel

from db.history import HistoryRow
from tuner.core import AccessRole, Caller
from tuner.service.http.access_routes import Who, only
from tuner.service.http.answers import rendered
from tuner.service.http.bodies import ThreadedRoute
from tuner.verbs.row import Verb
from tuner.wire import Message, check_protocol

OTHERS = {
    AccessRole.VIEWER: (AccessRole.VIEWER, AccessRole.OPERATOR),
    AccessRole.OPERATOR: (AccessRole.OPERATOR,),
    AccessRole.GRID: (AccessRole.GRID, AccessRole.OPERATOR),
    AccessRole.ADMIN: (),
}
"""The roles that may call a verb, by the verb's role; the admin may call every verb."""
QUERY_FIELDS = {"who": Who, "why": str}


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
    check_protocol(given.protocol)
    who = {"who": caller.name} if "who" in type(given).model_fields else {}
    return given.model_copy(update=who)
