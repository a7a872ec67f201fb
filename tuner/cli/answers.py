"""What a verb answers: the same as one JSON document with `--json`, and as lines and tables without."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import typer

from tuner.cli.options import AsJson
from tuner.cli.output import echo_json, echo_table


@dataclass(frozen=True, slots=True)
class Rows:
    """A table, or what is said where it has no rows."""

    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    nothing: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found: `value` for a program, `lines` for people; `failed` makes the exit code 1."""

    value: object
    lines: str | Rows | Iterable[str | Rows] = ()
    failed: bool = False


def checked(found: Iterable[tuple[bool, str, str, str]], nothing: str) -> Rows:
    """Return what was looked at as a table: whether it is well, what it is, what was seen, what to do."""
    rows = (("yes" if well else "no", *rest) for well, *rest in found)
    return Rows(("", "what", "seen", "next step"), rows, nothing)


Verb = Callable[..., Answer | None]

JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)


def tells(verb: Verb) -> Callable[..., None]:
    """Give a verb the option `--json`, and print what it answers.

    One that has a parameter `as_json` itself is told of it; one that answers None has printed already.
    """

    def told(*, as_json: bool, **given: object) -> None:
        show(asked(verb, as_json, given), as_json)

    return typed(told, verb, [JSON])


def asked(verb: Verb, as_json: bool, given: dict[str, object], *first: object) -> Answer | None:
    """Call a verb with what was given."""
    if "as_json" in inspect.signature(verb).parameters:
        given = {**given, "as_json": as_json}
    return verb(*first, **given)


def show(answer: Answer | None, as_json: bool) -> None:
    """Print an answer. Raises Exit with 1 for one that failed."""
    if answer is None:
        return
    if as_json:
        echo_json(answer.value)
    else:
        lines = [answer.lines] if isinstance(answer.lines, str | Rows) else answer.lines
        for line in lines:
            if isinstance(line, str):
                typer.echo(line)
            else:
                echo_table(*line.columns, rows=line.rows, nothing=line.nothing)
    if answer.failed:
        raise typer.Exit(1)


def typed(
    call: Callable[..., None], verb: Verb, added: Sequence[Parameter], skip: int = 0
) -> Callable[..., None]:
    """Return `call` with the parameters that Typer is to see: the verb's after `skip`, and those added."""
    names = {one.name for one in added}
    own = list(inspect.signature(verb, eval_str=True).parameters.values())[skip:]
    seen = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own if one.name not in names]
    made: Any = call
    made.__signature__ = inspect.Signature([*seen, *added])
    made.__annotations__ = {one.name: one.annotation for one in (*seen, *added)}
    made.__name__, made.__doc__, made.__module__ = verb.__name__, verb.__doc__, verb.__module__
    return call
