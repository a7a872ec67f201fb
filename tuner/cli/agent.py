"""`jouletune agent`: run the agent of this host, and put its devices back."""

from __future__ import annotations

import typer

commands = typer.Typer(help="Run the agent of this host; revert devices.")


@commands.command()
def serve() -> None:
    """Serve."""


@commands.command()
def revert() -> None:
    """Revert."""
