"""A group whose commands are rows of a table, each imported once it is called."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from tuner.cli.table import NOUNS, SECTIONS, VERBS


class LazyGroup(TyperGroup):
    """A group that lists commands from the table and imports only the called one."""

    def __init__(self, *, noun: str = "", **attributes: Any) -> None:  # noqa: ANN401 - what Typer hands over
        super().__init__(**attributes)
        if not noun:
            for name, line in NOUNS.items():
                self.commands[name] = LazyGroup(
                    noun=name, name=name, help=line, rich_markup_mode=None
                )
        for path, module, line in VERBS:
            of, _, name = path.rpartition(" ")
            if of == noun:
                self.commands[name] = Unloaded(name, module, line)
        listed = [name for names in SECTIONS.values() for name in names]
        more = tuple(name for name in self.commands if name not in listed)
        self.sections = {} if noun else SECTIONS | ({"More": more} if more else {})
        if not noun:
            self.commands = {name: self.commands[name] for name in (*listed, *more)}

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - Click's, or Typer's own
        """Write the commands by section; a noun's commands as one list."""
        if not self.sections:
            super().format_commands(ctx, formatter)
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{n:<12}", self.commands[n].help or "") for n in names])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Click's, or Typer's own
        """Return the called command, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, below(self, name) if name else command, rest


class Unloaded(TyperCommand):
    """A verb that is not imported yet: only its row is read."""

    def __init__(self, name: str, module: str, line: str) -> None:
        super().__init__(name, help=line, rich_markup_mode=None)
        self.row = name, module


def below(group: object, name: str) -> TyperCommand | TyperGroup | None:
    """Return a command of a group, imported; None if the group has no such command."""
    assert isinstance(group, TyperGroup)
    command = group.commands.get(name)
    return (
        load(*command.row)
        if isinstance(command, Unloaded)
        else cast("TyperCommand | TyperGroup | None", command)
    )


def load(name: str, module: str) -> TyperCommand:
    """Return the command of a row, its function imported."""
    # Help without rich, which would double the time of `--help`.
    around = typer.Typer(rich_markup_mode=None)
    around.command(name)(function(name, module))
    return cast("TyperCommand", get_group(around).commands[name])


def function(name: str, module: str) -> Callable[..., object]:
    """Return the function of a row; its name is the verb's, or the verb's with `_` at its end."""
    loaded, word = import_module(f"tuner.cli.{module}"), name.replace("-", "_")
    verb: Callable[..., object] = getattr(loaded, f"{word}_", None) or getattr(loaded, word)
    return verb
