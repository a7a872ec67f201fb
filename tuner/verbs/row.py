"""One row of the table of verbs: its HTTP request, its answer, and the role that it needs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar, get_args, get_origin
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from tuner.core import AccessRole, Conflict
from tuner.wire import StudyView

Seen = TypeVar("Seen", bound=StudyView, covariant=True)
"""The view of a study; the clients return one with methods."""
Declared = TypeVar("Declared", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Verb:
    """A request: its method and path, its parameters by name, its answer, and the role that it needs.

    A request without a body (`DELETE`) sends the fields `query_fields` of its message in the query.
    """

    name: str
    method: str
    path: str
    role: AccessRole
    status: int
    query_fields: tuple[str, ...]
    takes: Mapping[str, inspect.Parameter]
    answer: Any
    text: str

    @property
    def bodied(self) -> bool:
        """Whether its message is sent as the body."""
        return self.method in ("POST", "PUT")

    def sent(
        self, given: Mapping[str, object]
    ) -> tuple[str, BaseModel | None, dict[str, str] | None]:
        """Return the path, the body and the query of the request with these arguments."""
        path = self.path.format(**{n: quote(str(v), safe="") for n, v in given.items()})
        body: BaseModel | None = None
        query: dict[str, object] = {}
        for name, value in given.items():
            if isinstance(value, BaseModel):
                if self.bodied:
                    body = value
                else:
                    query |= {field: getattr(value, field) for field in self.query_fields}
            elif is_dataclass(value) and not isinstance(value, type):
                query |= asdict(value)
            elif f"{{{name}}}" not in self.path:
                query[name] = value
        sent = {name: _text(value) for name, value in query.items() if value is not None}
        return path, body, sent or None

    def read(self, content: bytes) -> object:
        """Return the value in an answer's body. Raises pydantic's ValidationError."""
        return _adapter(self.answer).validate_json(content or b"null")


class Asking(Generic[Seen]):
    """An implementation of the verbs of a table."""

    def ask(self, verb: Verb, given: Mapping[str, object]) -> Any:  # noqa: ANN401  as declared
        """Return the answer to a verb. Raises Conflict: this implementation does not have the verb."""
        raise Conflict(
            f"{verb.name} needs a running tuner", hint="give its address with --tuner URL"
        )


def verb(
    method: str, path: str, role: AccessRole, *, status: int = 200, query_fields: Sequence[str] = ()
) -> Callable[[Declared], Declared]:
    """Make a verb of a declaration: its name, parameters, answer and text are the declaration's."""

    def made(declared: Declared) -> Declared:
        signature = inspect.signature(declared, eval_str=True)
        takes = dict(list(signature.parameters.items())[1:])
        answer = _answer(signature.return_annotation)
        text = inspect.getdoc(declared) or ""
        row = Verb(
            declared.__name__, method, path, role, status, tuple(query_fields), takes, answer, text
        )

        @functools.wraps(declared)
        def request(self: Asking[Any], *args: object, **named: object) -> Any:  # noqa: ANN401
            bound = signature.bind(self, *args, **named)
            bound.apply_defaults()
            return self.ask(row, {n: v for n, v in bound.arguments.items() if n in takes})

        request.row = row  # type: ignore[attr-defined]
        return request  # type: ignore[return-value]

    return made


def verbs_of(table: type) -> tuple[Verb, ...]:
    """Return the rows of a table."""
    return tuple(made.row for made in vars(table).values() if hasattr(made, "row"))


def _answer(declared: Any) -> Any:  # noqa: ANN401  a type, or a variable for one
    """Return the type by which an answer is parsed."""
    if declared is Seen:
        return StudyView
    if get_origin(declared) is None:
        return declared
    (one,) = get_args(declared)
    return list[_answer(one)]  # type: ignore[misc]


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # noqa: ANN401  a type
    """Return the cached validator of a type."""
    return TypeAdapter(kind)


def _text(value: object) -> str:
    """Return a value as text for a query; a time as ISO 8601."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
