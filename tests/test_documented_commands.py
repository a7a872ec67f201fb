"""Every `jouletune …` line in README, docs/ and deploy/ is a command with options that exist."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tuner.cli.app import USAGE_ERROR, app

TOP = Path(__file__).parents[1]
PAGES = (TOP / "README.md", *sorted((TOP / "docs").rglob("*.md")))
LINE = re.compile(r"^(?:    )?(?:\$ )?(?:runuser .* -- )?jouletune (?P<given>.+)$", re.MULTILINE)
INLINE = re.compile(r"`jouletune (?P<given>[^`\n]*--[^`\n]*)`")


def documented() -> list[str]:
    """Return what follows `jouletune` in every block and in every sentence that gives options."""
    found = (
        match["given"]
        for page in PAGES
        for pattern in (LINE, INLINE)
        for match in pattern.finditer(page.read_text())
    )
    return sorted(
        {
            given.partition("  #")[0].strip()
            for given in found
            if not re.search(r"[…|>]|--help", given)
        }
    )


@cache
def program() -> Any:  # noqa: ANN401
    """Return the tree of commands."""
    return typer.main.get_command(app)


def parse(given: str) -> None:
    """Read a command line as the program would; nothing is run."""
    command, words = program(), shlex.split(given, comments=True)
    context = command.make_context("jouletune", words[:1], resilient_parsing=True)
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    command.make_context(command.name, words, parent=context)


@pytest.mark.parametrize("given", documented())
def test_every_documented_command_is_understood(given: str) -> None:
    parse(given)


def test_what_is_no_command_is_noticed() -> None:
    for wrong in ("study create --device ID --colour red", "study list --all", "trial list"):
        with pytest.raises(USAGE_ERROR):
            parse(wrong)
    with pytest.raises(AssertionError):
        parse("levitate")
