"""What a page's request brings: who asks, and the fields of a form."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from fastapi import Request

from tuner.core import AccessRole, Caller, Forbidden
from tuner.service.sessions import COOKIE, Sessions

MAY_CHANGE = (AccessRole.OPERATOR, AccessRole.ADMIN)


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form that its own page has sent, and who sent it."""

    caller: Caller
    fields: Mapping[str, tuple[str, ...]]

    def text(self, name: str) -> str:
        """Return a field, empty where it is missing."""
        return next(iter(self.fields.get(name, ())), "").strip()

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines of a field that say something."""
        return tuple(line for line in map(str.strip, self.text(name).splitlines()) if line)


def caller_of(request: Request) -> Caller:
    """Return who asks, as the gate let them in."""
    caller: Caller = request.state.caller
    return caller


def require_role(request: Request, *roles: AccessRole) -> Caller:
    """Return who asks. Raises Forbidden unless they have one of the roles."""
    caller = caller_of(request)
    if caller.role not in roles:
        raise Forbidden(
            f"{caller.name} is a {caller.role} here and may not do this",
            hint=f"sign in with the token of an {' or '.join(roles)}",
        )
    return caller


async def read_form(request: Request, sessions: Sessions, *roles: AccessRole) -> Form:
    """Return a form of ours.

    Raises:
        Forbidden: the caller may not, or another site made the form.
    """
    caller = require_role(request, *(roles or MAY_CHANGE))
    fields = await posted(request)
    key = next(iter(fields.get("form_key", ())), "")
    wanted = sessions.form_key(request.cookies.get(COOKIE, ""))
    if not hmac.compare_digest(key.encode(), wanted.encode()):
        raise Forbidden("the form is not of this session", hint="load the page again")
    return Form(caller, fields)


async def posted(request: Request) -> Mapping[str, tuple[str, ...]]:
    """Return the fields of a form, as browsers encode them."""
    text = (await request.body()).decode(errors="replace")
    return {k: tuple(v) for k, v in parse_qs(text, keep_blank_values=True).items()}
