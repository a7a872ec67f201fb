"""The entry point `jouletune`: the tree of commands, and errors as one line."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from tuner.cli import CTRL_C, importing
from tuner.cli.reach import reaching, typed_options, with_own_engine
from tuner.cli.table import NOUNS, SECTIONS, VERBS
from tuner.errors import (
    ConfigError,
    InvalidInput,
    NotFound,
    StoreError,
    TuningError,
    Unauthorised,
)
from tuner.installed import check_names, commit, version


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
        path = f"{ctx.command_path} {args[0]}".partition(" ")[2]
        if where := REMOVED.get(path):
            raise InvalidInput(f"jouletune no longer has `{path}`", hint=where)
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
    with importing():
        loaded, word = import_module(f"tuner.cli.{module}"), name.replace("-", "_")
    verb: Callable[..., object] = getattr(loaded, f"{word}_", None) or getattr(loaded, word)
    return verb


# The root of typer's usage errors: releases differ in where they export it from.
USAGE_ERROR = cast(
    "type[Exception]",
    next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"),
)


app = typer.Typer(
    name="jouletune",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    """Print the versions of the program, the schema and the protocol, and exit."""
    if requested:
        # Not loaded for a help text, which would take several times as long.
        from db import SCHEMA
        from tuner.wire import PROTOCOL

        parts = (commit() or "unknown", SCHEMA, PROTOCOL)
        typer.echo(
            "jouletune {} (commit {}, database schema {}, wire protocol {})".format(
                version(), *parts
            )
        )
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the release.")
    ] = False,
) -> None:
    """Tune hardware and runtime knobs for least energy while your limits hold."""


NEED_311 = ("tuner", "run")
"""Commands that contain the tuner. On Python 3.10, as in JetPack 6, only agent and actuator run."""
CODES = (2, 3, 124)
"""Exit codes beside 0 and 1: bad input, a diff with changes, a wait that timed out."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a write to stdout if stdout is a file on a full disk."""


def main(
    arguments: Sequence[str] | None = None, root: typer.Typer | None = None, name: str = "jouletune"
) -> int:
    """Run one command and return its exit code: 0 done, 2 bad input, 1 else.

    A diff with changes ends with 3, a wait that timed out with 124, an interrupt with 130, a service whose
    configuration is wrong with 78. Errors become one line on stderr, a JSON object with `--json`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of ISO 8859-1 has no arrow
            stream.reconfigure(errors="replace")
    if "_JOULETUNE_COMPLETE" in os.environ:
        return 0  # a script of an earlier release, replaced by `jouletune completion`
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    as_json = wants_json(given)
    if why := too_old(given, sys.version_info[:2]):
        return _refuse("usage", *why, as_json=as_json, code=2)
    if broken := next((at for at, word in enumerate(given, 1) if not is_text(word)), 0):
        why = f"argument {broken} is not valid UTF-8", "write it in UTF-8"
        return _refuse("usage", *why, as_json=as_json, code=2)
    if given[0] == "run":
        given = with_own_engine(given)
    try:
        if given[0] == "run" or given[1:2] == ["serve"]:
            check_names()
        colour = False if os.environ.get("TERM") == "dumb" else None
        code = (root or app)(given, prog_name=name, standalone_mode=False, color=colour)
    except USAGE_ERROR as error:
        return _refuse("usage", *_usage(error), as_json=as_json, code=2)
    except TuningError as error:
        code = EX_CONFIG if _misconfigured(given, error) else _exit_code(error)
        hint = reaching(error.hint, typed_options(given))
        return _refuse(error.code, error.message, hint, as_json=as_json, code=code)
    except ValueError as error:
        if (refusal := _unfit(error)) is None:
            raise
        return _refuse("invalid_input", *refusal, as_json=as_json, code=2)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in ("tuner", "agents", "policies", "db"):
            raise
        hint = "install the tuner's part: pip install 'jouletune[tuner]'"
        return _refuse("missing", f"{error.name} is not installed", hint, as_json=as_json, code=1)
    except OSError as error:
        if error.errno not in (*NO_ROOM, errno.ENOENT) or error.filename is not None:
            raise
        why = f"the output is not complete: {error.strerror}", "free space, or write elsewhere"
        if error.errno == errno.ENOENT:
            why = "the current folder was removed", "change to a folder that exists"
        return _refuse("store", *why, as_json=as_json, code=1)
    except typer.Abort:
        code = CTRL_C
    if code == CTRL_C:
        return _refuse("interrupted", "interrupted", "", as_json=as_json, code=CTRL_C)
    return min(code, 1) if isinstance(code, int) and code not in CODES else code or 0


def is_text(word: str) -> bool:
    """Return whether an argument can be encoded: bytes that are not UTF-8 arrive as half surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def wants_json(given: Sequence[str]) -> bool:
    """Return whether errors are printed as JSON: `--json`, `-o json` or `--format json` is given."""
    pairs = {*pairwise(given)}
    return bool({"--json", "-ojson", "--format=json"} & {*given}) or any(
        (option, "json") in pairs for option in ("-o", "--format")
    )


def too_old(given: Sequence[str], python: tuple[int, ...]) -> tuple[str, str] | None:
    """Return the reason why a command cannot run on this Python and the next step; None if it can."""
    if given[0] not in NEED_311 or python >= (3, 11):
        return None
    this = ".".join(map(str, python))
    return (
        f"jouletune {given[0]} needs Python 3.11 or newer; this is Python {this}",
        "run the tuner on another host; on this one run `jouletune agent serve` with its --tuner",
    )


EX_CONFIG = 78
"""A service with a wrong configuration (sysexits.h): systemd does not restart it."""


def _misconfigured(given: Sequence[str], error: TuningError) -> bool:
    """Return whether a service did not start because of its file, not because of typed options."""
    if list(given[1:2]) != ["serve"] or not isinstance(error, ConfigError):
        return False
    file = next((b for a, b in pairwise(given) if a == "--config"), "")
    return bool(os.environ.get("NOTIFY_SOCKET")) or Path(file).is_file()


def _exit_code(error: TuningError) -> int:
    """Return 130 for an interrupt, 2 for an error that a changed command corrects, else 1."""
    if error.code == "interrupted":
        return CTRL_C
    correctable = (InvalidInput, ConnectionError, NotFound, StoreError, Unauthorised)
    return 2 if isinstance(error, correctable) else 1


REMOVED = {
    "export optuna": "use `jouletune export mlflow`, or `jouletune history --format csv`",
    "finetune admit": "use `jouletune finetune run`, which measures the latency and pauses the job",
    "packrat measure": "it measured the reference model only: in a checkout run `make bench-packrat`",
    "packrat plan --plot": "draw the rows of the profile yourself",
    "speculation overhead": "compare `jouletune workload check` of the server and of its proxy",
    "speculation proxy --attach": "give the server's command after --; the proxy starts it",
    "speculation table": "`jouletune speculation profile` prints it; its --out keeps the windows",
    "top": "use `jouletune fleet --watch`",
}
"""Removed commands, and removed options after their command, each with its replacement."""

PYDANTICS = "Value error, "
"""Prefix of Pydantic's messages under some releases of Typer."""


def _usage(error: BaseException) -> tuple[str, str]:
    """Return the message and the next step of a usage error."""
    message = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "jouletune"
    option = getattr(error, "option_name", "")
    if where := REMOVED.get(f"{path.partition(' ')[2]} {option}"):
        return f"`{path}` no longer has {option}", where
    words = " ".join(message.split()).rstrip(".?").replace(PYDANTICS, "").replace(". Did", "; did")
    return words, f"see `{path} --help`"


def _unfit(error: ValueError) -> tuple[str, str] | None:
    """Return the message and the next step of an invalid value; None for another error.

    Every verb puts its input into a message of `tuner.wire`, whose validation raises the error.
    """
    pydantic = sys.modules.get("pydantic")  # not imported for this: it takes a third of a second
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return None
    from tuner.core import first_fault  # imported already, with tuner.wire

    return (
        f"invalid value: {first_fault(error)}",
        "correct or shorten it, and run the command again",
    )


def _refuse(kind: str, message: str, hint: str, *, as_json: bool, code: int) -> int:
    """Print an error in one line on stderr and return the exit code."""
    if as_json:
        problem = {"code": kind, "message": message, "hint": hint}
        typer.echo(json.dumps(problem, ensure_ascii=False), err=True)
    else:
        typer.echo(f"error: {message}; {hint}" if hint else f"error: {message}", err=True)
    return code
