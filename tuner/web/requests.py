"""The caller of a page's request, and the fields of its form."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request

from tuner.core import AccessRole, Caller, Forbidden, InvalidInput
from tuner.service.http.sessions import COOKIE, Sessions

MOST_FIELDS_OF_STRANGERS, MOST_FIELDS = 32, 4096
"""A new study's form has a field for each of its devices."""
MAY_CHANGE = (AccessRole.OPERATOR, AccessRole.ADMIN)


Fields = Mapping[str, tuple[str, ...]]


async def _body(request: Request) -> bytes:
    return await request.body()


def posted(request: Request, body: Annotated[bytes, Depends(_body)]) -> Fields:
    """Return the fields of a form, as browsers encode them; in a worker thread. Raises InvalidInput."""
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
"""The fields of the form that a request brings. Its size is the gate's to bound."""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form that its own page has sent, and who sent it."""

    caller: Caller
    fields: Fields

    def text(self, name: str) -> str:
        """Return a field, empty where it is missing."""
        return next(iter(self.fields.get(name, ())), "").strip()

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines of a field that say something."""
        return tuple(line for line in map(str.strip, self.text(name).splitlines()) if line)


def caller_of(request: Request) -> Caller:
    """Return the caller that the gate admitted."""
    caller: Caller = request.state.caller
    return caller


def require_role(request: Request, *roles: AccessRole) -> Caller:
    """Return the caller. Raises Forbidden unless they have one of the roles."""
    caller = caller_of(request)
    if caller.role not in roles:
        raise Forbidden(
            f"role {caller.role} of {caller.name} may not do this",
            hint=f"sign in with the token of an {' or '.join(roles)}",
        )
    return caller


def read_form(request: Request, fields: Fields, sessions: Sessions, *roles: AccessRole) -> Form:
    """Return a form of ours.

    Raises:
        Forbidden: the caller may not, or another site made the form.
    """
    caller = require_role(request, *(roles or MAY_CHANGE))
    key = next(iter(fields.get("form_key", ())), "")
    expected = sessions.form_key(request.cookies.get(COOKIE, ""))
    if not hmac.compare_digest(key.encode(), expected.encode()):
        raise Forbidden(
            "the form belongs to another session", hint="reload the page and send it again"
        )
    return Form(caller, fields)
