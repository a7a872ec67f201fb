"""README's table of promises: each row names tests that prove it, and these exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?P<wrong>[^|]+) \| (?P<then>[^|]+) \| (?P<tests>[^|]+) \|$")


def promises() -> list[tuple[str, list[str]]]:
    """Return what may go wrong, and the tests that README names for it."""
    text = (TOP / "README.md").read_text()
    table = text.partition("## What it promises")[2].partition("\n## ")[0]
    rows = [ROW.match(line) for line in table.splitlines() if line.startswith("|")][2:]
    assert all(rows), "a row of the table has not three cells"
    return [(row["wrong"], re.findall(r"`(\w+)`", row["tests"])) for row in rows if row]


@cache
def written_tests() -> set[str]:
    """Return the names of all test functions."""
    return {
        node.name
        for path in (TOP / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_readme_promises_something() -> None:
    assert len(promises()) > 10


@pytest.mark.parametrize(("wrong", "tests"), promises(), ids=lambda cell: str(cell)[:40])
def test_every_promise_names_tests_that_exist(wrong: str, tests: list[str]) -> None:
    assert tests, f"nothing proves what is promised when: {wrong}"
    assert set(tests) <= written_tests()
