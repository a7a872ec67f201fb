"""The caller of a page's request, and the fields of its form."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Request

from tuner.core import AccessRole, Caller, Forbidden, InvalidInput
from tuner.service.http.sessions import COOKIE, Sessions
from tuner.wire import Change

MOST_FIELDS_OF_STRANGERS, MOST_FIELDS = 32, 4096
"""The most fields of a form: without and with a session. The form of a new study has one per device."""
MAY_CHANGE = (AccessRole.OPERATOR, AccessRole.ADMIN)


Fields = Mapping[str, tuple[str, ...]]


async def _body(request: Request) -> bytes:
    """Return the request's body, read in the event loop."""
    return await request.body()


def posted(request: Request, body: Annotated[bytes, Depends(_body)]) -> Fields:
    """Return the fields of a URL-encoded form, parsed in a worker thread. Raises InvalidInput: too many."""
    stranger = getattr(request.state, "caller", None) is None
    most = MOST_FIELDS_OF_STRANGERS if stranger else MOST_FIELDS
    try:
        fields = parse_qs(
            body.decode(errors="replace"), keep_blank_values=True, max_num_fields=most
        )
    except ValueError:
        raise InvalidInput(f"a form has at most {most} fields", hint="send fewer") from None
    return {k: tuple(v) for k, v in fields.items()}


Posted = Annotated[Fields, Depends(posted)]
"""The fields of a request's form. The gate bounds the size of its body."""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form that one of our pages has sent, and its caller."""

    caller: Caller
    fields: Fields

    def text(self, name: str) -> str:
        """Return a field without surrounding blanks; empty if it is missing."""
        return next(iter(self.fields.get(name, ())), "").strip()

    @property
    def change(self) -> Change:
        """The caller and the reason of a change."""
        return Change(who=self.caller.name, why=self.text("why"))

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the non-empty lines of a field."""
        return tuple(line for line in map(str.strip, self.text(name).splitlines()) if line)


def require_role(request: Request, *roles: AccessRole) -> Caller:
    """Return the caller. Raises Forbidden: the caller has none of the roles."""
    caller: Caller = request.state.caller
    if caller.role not in roles:
        raise Forbidden(
            f"role {caller.role} of {caller.name} may not do this",
            hint=f"sign in with the token of an {' or '.join(roles)}",
        )
    return caller


def signed_form(sessions: Sessions, *roles: AccessRole) -> Any:  # noqa: ANN401  FastAPI's own
    """Return a dependency that returns a form of one of our pages, checked for caller and form key.

    Without `roles` those of `MAY_CHANGE` may send it. It raises Forbidden if the caller has none of the
    roles, or if the form is not from the caller's session, as with a form of another site.
    """

    def read(request: Request, fields: Posted) -> Form:
        caller = require_role(request, *(roles or MAY_CHANGE))
        key = next(iter(fields.get("form_key", ())), "")
        expected = sessions.form_key(request.cookies.get(COOKIE, ""))
        if not hmac.compare_digest(key.encode(), expected.encode()):
            raise Forbidden(
                "the form belongs to another session", hint="reload the page and send it again"
            )
        return Form(caller, fields)

    return Depends(read)
