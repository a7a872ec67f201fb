"""A group whose commands are rows of a table, each imported once it is called."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


class LazyGroup(TyperGroup):
    """A group that shows its rows and imports the one that is called.

    A row is a command's name, the module of `tuner.cli` that has it, and its line in the group's help. The
    module has a Typer called `commands`, or else a function that is called like the command.
    """

    rows: ClassVar[Sequence[tuple[str, str, str]]] = ()

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - what this Typer hands over
        super().__init__(**attributes)
        for name, _, line in self.rows:
            self.commands[name] = TyperCommand(name, help=line, rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Click's, or Typer's own
        """Return the command that is called, imported."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, below(self, name) if name else found, rest


def below(group: object, name: str) -> TyperCommand | TyperGroup | None:
    """Return a command of a group, imported; None where it has none of that name."""
    if isinstance(group, LazyGroup):
        return next((load(*row) for row in group.rows if row[0] == name), None)
    assert isinstance(group, TyperGroup)
    return cast("TyperCommand | TyperGroup | None", group.commands.get(name))


def load(name: str, module: str, line: str) -> TyperCommand | TyperGroup:
    """Import the command of a row."""
    found = import_module(f"tuner.cli.{module}")
    # Plain help: rich's would double the time of `--help`.
    around = typer.Typer(rich_markup_mode=None)
    if isinstance(nested := getattr(found, "commands", None), typer.Typer):
        around.add_typer(nested, name=name, help=line)
    else:
        around.command(name)(getattr(found, name.replace("-", "_")))
    return cast("TyperCommand | TyperGroup", get_group(around).commands[name])
