"""Options that commands in hints and texts need to reach the same tuner or database."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

OPTIONS = ("--tuner", "--token-file", "--db")
ASKING = frozenset({
    "audit", "best", "constraint", "device", "events", "export", "fleet", "history", "report", "status",
    "stop-all", "study", "token", "trial",
})  # fmt: skip
"""The commands and nouns that accept these options."""
COMMAND = re.compile(r"`jouletune ([a-z-]+)([^`]*)`")


def options_of(tuner: str, token_file: Path | None, db: str) -> str:
    """Return the options that name a tuner or a database, as typed; empty if none is given."""
    named = zip(OPTIONS, (tuner, str(token_file or ""), db), strict=True)
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in named if value)


def typed_options(arguments: Sequence[str]) -> str:
    """Return those of `OPTIONS` that a command line has."""
    options = []
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option in OPTIONS and equals:
            options.append(f"{option} {shlex.quote(value)}")
        elif option in OPTIONS and place + 1 < len(arguments):
            options.append(f"{option} {shlex.quote(arguments[place + 1])}")
    return " ".join(options)


def reaching(text: str, options: str) -> str:
    """Return a text with `options` added to its commands in backticks that accept them."""
    if not options:
        return text

    def completed(command: re.Match[str]) -> str:
        name, rest = command.groups()
        has = any(option in rest for option in OPTIONS)
        return command[0] if name not in ASKING or has else f"`jouletune {name}{rest} {options}`"

    return COMMAND.sub(completed, text)


OWN = "-"
"""The value of --llm without an address: the command after -- is the engine's."""


def with_own_engine(given: Sequence[str]) -> list[str]:
    """Return the arguments of `run` with a value for an --llm without one: options have none in Typer."""
    end = given.index("--") if "--" in given else 0
    return [
        f"{word}={OWN}" if word == "--llm" and at < end and given[at + 1].startswith("-") else word
        for at, word in enumerate(given)
    ]
