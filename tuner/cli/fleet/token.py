"""`jouletune token`: create, list and revoke tokens of operators and agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, with_api
from tuner.core import ConfigError
from tuner.moments import when
from tuner.wire import TOKEN_DAYS, NewToken, TokenDraft

RoleName = Literal["viewer", "operator", "admin", "grid"]
"""The values of `tuner.core.AccessRole` that people can have."""


@with_api()
def create(
    api: Api,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The person's name; optional with --enrol.")
    ] = "",
    role: Annotated[
        RoleName,
        typer.Option(
            help="viewer: read; operator: change studies; admin: create tokens; grid: send events."
        ),
    ] = "operator",
    days: Annotated[
        int, typer.Option(min=0, max=3650, help="Days until it expires; 0: never.")
    ] = TOKEN_DAYS,
    enrol: Annotated[
        bool,
        typer.Option(
            "--enrol",
            help="Create a token that enrols one agent within a day; put it into its token file.",
        ),
    ] = False,
) -> Answer:
    """Create a token for a person, or to enrol an agent, and print it once.

    Needs the tuner's own token file, another admin's, or its database.
    """
    if enrol and (role, days) != ("operator", TOKEN_DAYS):
        raise ConfigError(
            "--role and --days do not apply to --enrol",
            hint="remove them: the token enrols one agent, within a day",
        )
    draft = {"name": name, "role": "enrol" if enrol else role, "days": days}
    created = api.access.create(TokenDraft.model_validate(draft))
    return Answer(created, _token_lines(created))


def _token_lines(created: NewToken) -> Iterator[str]:
    """Yield only the token, for scripts; print its name, role and expiry on stderr."""
    until = f" until {when(created.expires_at)}" if created.expires_at else ""
    typer.echo(f"{created.name}: {created.role}{until}, shown only now", err=True)
    yield created.token


@with_api(lists=True)
def list_(api: Api) -> Answer:
    """List tokens by name; the tuner's own is not listed."""
    views = api.access.tokens()
    rows = (
        (
            v.name,
            v.role,
            v.state,
            when(v.expires_at) if v.expires_at else "–",
            when(v.created_at),
        )
        for v in views
    )
    nothing = "no tokens but the tuner's own; create one with `jouletune token create`"
    return Answer(views, Rows(("name", "role", "state", "expires", "+created"), rows, nothing))


@with_api()
def revoke(
    api: Api,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name in `token list`.")],
) -> Answer:
    """Revoke a token from its next request on; its name is free again.

    An agent with the tuner's own token in its token file enrols again: change that file first.
    """
    api.access.revoke(name)
    return Answer({"revoked": name}, f"{name} is revoked")
