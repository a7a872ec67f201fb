"""SECURITY.md: each claim names an existing test, and each role has a section."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tuner.core import AccessRole

TOP = Path(__file__).parents[1]
PAGE = TOP / "SECURITY.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROW = re.compile(r"^\|(.+)\|(.+)\|(.+)\|$", re.MULTILINE)


@cache
def names_in(file: str) -> set[str]:
    """Return the names of a file's tests."""
    tree = ast.parse((TOP / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(TEXT))))
def test_each_named_test_exists(file: str, name: str) -> None:
    assert name in names_in(file), f"SECURITY.md names {file}::{name}: correct the row"


def test_every_claim_has_a_test_beside_it() -> None:
    rows = [row for row in ROW.findall(TEXT) if row[0].strip("- ") not in ("", "attempt")]
    assert len(rows) > 25
    assert [row for row in rows if not NAMED.search(row[2])] == []


def test_every_role_has_its_section() -> None:
    headings = " ".join(re.findall(r"^### (.*)$", TEXT, re.MULTILINE)).lower()
    missing = [role.value for role in AccessRole if not re.search(rf"\b{role.value}\b", headings)]
    assert missing == [], (
        f"SECURITY.md has no section on the role {missing}: add it, with its tests"
    )
