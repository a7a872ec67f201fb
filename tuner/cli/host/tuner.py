"""`jouletune tuner serve`: run the central tuner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tuner import main
from tuner.cli.host import logs
from tuner.cli.options import without_password
from tuner.config import TunerConfig, load_tuner_config


def serve(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="tuner.toml; options override it.")
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="JOULETUNE_DB",
            callback=without_password,
            help="Database URL, without a password; put that into tuner.toml or a passfile.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0: any free port.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The admin's bearer token; created if missing."),
    ] = None,
    behind_proxy: Annotated[
        bool | None,
        typer.Option(
            "--behind-proxy",
            help="Listen beyond loopback without TLS, because a proxy in front provides it.",
        ),
    ] = None,
    suggest: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where suggestions are computed: local[:N] (processes), here, or ray://HOST:PORT.",
        ),
    ] = None,
    port_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the port to this file.")
    ] = None,
) -> None:
    """Serve agents and operators until SIGTERM or Ctrl-C."""
    given = {
        "db": db,
        "host": host,
        "port": port,
        "token_file": token_file,
        "port_file": port_file,
        "behind_proxy": behind_proxy,
        "suggest": suggest,
    }
    base = TunerConfig() if config is None else load_tuner_config(config)
    logs.begin("alembic")
    changes: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    main.serve(replace(base, **changes))  # type: ignore[arg-type]
