"""`jouletune token`: let operators and agents in, and out."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tuner.cli.options import AsJson, Db, TokenFile, TunerUrl

RoleName = Literal["viewer", "operator", "admin"]
"""`tuner.core.AccessRole` of people, spelt out: the vocabulary is not loaded for a help text."""

commands = typer.Typer()


@commands.command("create")
def create(
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
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Print a new token: a person's, or one that enrols an agent. It is shown this once.

    Needs the tuner's own token file, another admin's, or its database.
    """
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json
    from tuner.wire import TokenDraft

    with open_api(tuner, token_file, db) as api:
        made = api.access.create(
            TokenDraft.model_validate(
                {"name": name, "role": "enrol" if enrol else role, "days": days}
            )
        )
    if as_json:
        echo_json(made)
        return
    until = f" until {made.expires_at:%Y-%m-%d %H:%M} UTC" if made.expires_at else ""
    typer.echo(f"{made.name}: {made.role}{until}, shown only now", err=True)
    typer.echo(made.token)


@commands.command("list")
def list_(
    tuner: TunerUrl = "", token_file: TokenFile = None, db: Db = "", as_json: AsJson = False
) -> None:
    """List tokens by whom they are for; the tuner's own is not among them."""
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json, echo_table

    with open_api(tuner, token_file, db) as api:
        views = api.access.tokens()
    if as_json:
        echo_json(views)
        return
    echo_table(
        "name", "role", "state", "created", "expires",
        rows=(
            (
                v.name,
                v.role,
                v.state,
                f"{v.created_at:%Y-%m-%d %H:%M}",
                f"{v.expires_at:%Y-%m-%d %H:%M}" if v.expires_at else "–",
            )
            for v in views
        ),
        nothing="no tokens but the tuner's own; make one with `jouletune token create`",
    )  # fmt: skip


@commands.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose, as `token list` shows it.")],
    tuner: TunerUrl = "",
    token_file: TokenFile = None,
    db: Db = "",
    as_json: AsJson = False,
) -> None:
    """Refuse a token from its next request on; the name is free again.

    An agent whose token file has the tuner's own token enrols anew: change that first.
    """
    from tuner.cli.operator_api import open_api
    from tuner.cli.output import echo_json

    with open_api(tuner, token_file, db) as api:
        api.access.revoke(name)
    if as_json:
        echo_json({"revoked": name})
    else:
        typer.echo(f"{name} is revoked")
