"""`jouletune token`: let operators and agents in, and out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from tuner.cli.answers import Answer, Rows
from tuner.cli.asking import Api, asks
from tuner.moments import when
from tuner.wire import NewToken, TokenDraft

RoleName = Literal["viewer", "operator", "admin"]
"""`tuner.core.AccessRole` of people."""


@asks()
def create(
    api: Api,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whose it is; --enrol needs none.")
    ] = "",
    role: Annotated[
        RoleName,
        typer.Option(
            help="A viewer only looks, an operator changes studies, an admin makes tokens."
        ),
    ] = "operator",
    days: Annotated[
        int, typer.Option(min=0, max=3650, help="How long it lasts; 0 is until it is revoked.")
    ] = 90,
    enrol: Annotated[
        bool,
        typer.Option(
            "--enrol", help="For one new agent, within a day: put it into its token file."
        ),
    ] = False,
) -> Answer:
    """Print a new token: a person's, or one that enrols an agent. It is shown this once.

    Needs the tuner's own token file, another admin's, or its database.
    """
    asked = {"name": name, "role": "enrol" if enrol else role, "days": days}
    made = api.access.create(TokenDraft.model_validate(asked))
    return Answer(made, _told(made))


def _told(made: NewToken) -> Iterator[str]:
    """Yield the token alone; whose it is goes to stderr."""
    until = f" until {when(made.expires_at)}" if made.expires_at else ""
    typer.echo(f"{made.name}: {made.role}{until}, shown only now", err=True)
    yield made.token


@asks(lists=True)
def list_(api: Api) -> Answer:
    """List tokens by whom they are for; the tuner's own is not among them."""
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
    nothing = "no tokens but the tuner's own; make one with `jouletune token create`"
    return Answer(views, Rows(("name", "role", "state", "expires", "+created"), rows, nothing))


@asks()
def revoke(
    api: Api,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose, as `token list` shows it.")],
) -> Answer:
    """Refuse a token from its next request on; the name is free again.

    An agent whose token file has the tuner's own token enrols anew: change that first.
    """
    api.access.revoke(name)
    return Answer({"revoked": name}, f"{name} is revoked")
