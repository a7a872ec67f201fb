"""The product's promises about failures: the marks of the tests that prove them, as a page.

`@pytest.mark.promise(wrong, then)` on a test has the failure and its consequence. If several tests
share a promise, at least one gives the consequence. `make promises` writes docs/promises.md, `--tests`
lists the tests of each.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[1]
PAGE = TOP / "docs" / "promises.md"
HEAD = """\
# Promises: what happens when something fails
This page lists failures and their consequences. Tests prove each row; `python -m tests.promises --tests`
lists them. `make promises` writes this page from the marks of the tests.

| failure | consequence | tests |
|---|---|---|
"""


@dataclass(frozen=True)
class Promise:
    """One test's part in a promise; `then` is empty if another test of the promise gives it."""

    wrong: str
    then: str
    test: str


def promises(top: Path = TOP) -> list[Promise]:
    """Return the promises of all tests, ordered by failure, then by file and line."""
    marked_promises = [
        one for file in sorted((top / "tests").rglob("*.py")) for one in marked(file)
    ]
    return sorted(marked_promises, key=lambda one: one.wrong.lower())


def marked(file: Path) -> Iterator[Promise]:
    """Yield the promises of a file of tests, in order. Reads the file; imports nothing."""
    text = file.read_text()
    if "mark.promise(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                wrong, then, *_ = [*map(ast.literal_eval, mark.args), ""]
                yield Promise(wrong, then, node.name)


def page(listed: list[Promise]) -> str:
    """Return docs/promises.md. Raises ValueError: no test gives the consequence of a failure."""
    rows = []
    for wrong in dict.fromkeys(one.wrong for one in listed):
        of = [one for one in listed if one.wrong == wrong]
        then = "; ".join(one.then for one in of if one.then)
        if not then:
            raise ValueError(f"{of[0].test} promises something when {wrong!r}; no mark says what")
        rows.append(f"| {wrong} | {then} | {len(of)} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--tests"]:
        for one in promises():
            print(f"{one.wrong}: {one.test}")
    else:
        PAGE.write_text(page(promises()))
