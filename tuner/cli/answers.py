"""The result of a verb: one JSON document with `--json`, else lines and lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import typer

from tuner.bounds import visible
from tuner.cli.options import AsJson, ListFormat
from tuner.cli.output import echo_json, list_width, listing
from tuner.cli.reach import reaching
from tuner.core import ConfigError
from tuner.presentation.figures import how_many


@dataclass(frozen=True, slots=True)
class Rows:
    """A list, and the line that replaces an empty list. The first column is the name to type."""

    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    nothing: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A result: `value` for a program, `lines` for people; `failed` makes the exit code `code`."""

    value: object
    lines: str | Rows | Iterable[str | Rows] = ()
    failed: bool = False
    code: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A check: its subject, whether it passed, the observed state, and the next step if it failed.

    `there` is None where this host has no such thing.
    """

    about: str
    there: bool | None
    seen: str
    hint: str = ""


def checked(
    findings: Iterable[Finding], nothing: str = "no checks", otherwise: str = "FAILED"
) -> Iterator[str]:
    """Yield one line per check: passed or not, subject, result; a second line has the next step.

    `otherwise` is the word for a failed check, `nothing` the line if there is no check.
    """
    empty = True
    for one in findings:
        empty = False
        word = "none" if one.there is None else "ok" if one.there else otherwise
        yield f"{word:<8}{one.about}: {one.seen}"
        if one.hint:
            yield f"{'':<8}next: {one.hint}"
    if empty:
        yield nothing


Verb = Callable[..., Answer | None]

JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
FORMAT = Parameter("form", Parameter.KEYWORD_ONLY, default="table", annotation=ListFormat)
LISTS = (FORMAT, JSON)


def with_json(verb: Verb) -> Callable[..., None]:
    """Add the option `--json` to a verb, and print its result.

    A verb with a parameter `as_json` receives it. A verb that returns None has printed already.
    """

    def run(*, as_json: bool, **given: object) -> None:
        show(called(verb, as_json, given), "json" if as_json else "table")

    return typed(run, verb, [JSON])


def lists(verb: Verb) -> Callable[..., None]:
    """Add the options `-o` and `--json` of lists to a verb, and print its result."""

    def run(*, form: str, as_json: bool, **given: object) -> None:
        show(called(verb, as_json, given), chosen(form, as_json), wider="-o wide")

    return typed(run, verb, LISTS)


def chosen(form: str, as_json: bool, default: str = "table") -> str:
    """Return the format of `-o` and `--json`. Raises ConfigError where they contradict each other."""
    if as_json and form not in (default, "json"):
        raise ConfigError(f"both --json and -o {form} are given", hint="give one of them")
    return "json" if as_json else form


def called(verb: Verb, as_json: bool, given: dict[str, object], *first: object) -> Answer | None:
    """Return the result of a verb that is called with its options."""
    if "as_json" in inspect.signature(verb).parameters:
        given = {**given, "as_json": as_json}
    return verb(*first, **given)


def show(
    answer: Answer | None, form: str = "table", options: str = "", wider: str = "--json"
) -> None:
    """Print a result as `table`, `wide`, `name` or `json`. Raises Exit for a failed result.

    `options` are added to the commands in its texts: see `tuner.cli.reach`. `wider` is the option that
    shows the hidden columns.
    """
    if answer is None:
        return
    if form == "json":
        echo_json(answer.value)
    else:
        parts = [answer.lines] if isinstance(answer.lines, str | Rows) else answer.lines
        for part in parts:
            _print(part, form, options, wider)
    if answer.failed:
        raise typer.Exit(answer.code)


def _print(part: str | Rows, form: str, options: str, wider: str) -> None:
    """Print a line or a list; the form `name` prints only the first column of lists."""
    if isinstance(part, str):
        if form != "name":
            typer.echo(reaching(part, options))
        return
    rows = [[reaching(value, options) for value in row] for row in part.rows]
    if form == "name":
        for row in rows:
            typer.echo(visible(row[0]))
    elif not rows:
        typer.echo(part.nothing)
    else:
        width = None if form == "wide" else list_width()
        made = listing(part.columns, rows, width)
        typer.echo(typer.style(made.head, bold=True))
        for line in made.body:
            typer.echo(line)
        if made.hidden:
            typer.echo(f"{how_many(made.hidden, 'column')} hidden: {wider}")


def typed(
    call: Callable[..., None], verb: Verb, added: Sequence[Parameter], skip: int = 0
) -> Callable[..., None]:
    """Return `call` with a signature for Typer: the verb's parameters after `skip`, then those added."""
    names = {one.name for one in added}
    own = list(inspect.signature(verb, eval_str=True).parameters.values())[skip:]
    parameters = [
        one.replace(kind=Parameter.KEYWORD_ONLY)
        for one in own
        if one.name not in names and one.kind is not Parameter.VAR_KEYWORD
    ]
    command: Any = call
    command.__signature__ = inspect.Signature([*parameters, *added])
    command.__annotations__ = {one.name: one.annotation for one in (*parameters, *added)}
    command.__name__, command.__doc__, command.__module__ = (
        verb.__name__,
        verb.__doc__,
        verb.__module__,
    )
    return call
