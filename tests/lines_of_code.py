"""How many lines of code there are: `python -m tests.lines_of_code`."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("tuner", "agents", "policies", "db")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(path: Path) -> int:
    """Count the lines that hold code: not those with comments, docstrings or nothing alone."""
    text = path.read_text()
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                told |= set(range(child.lineno, (child.end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - told)


def counted(root: Path, room: str) -> tuple[int, int]:
    """Return a folder's Python files and their lines of code."""
    files = list((root / room).rglob("*.py"))
    return len(files), sum(map(lines_of_code, files))


def table(root: Path) -> str:
    """Return the count of each folder, of the product, and, apart from it, of the tests."""
    rows = [(room, *counted(root, room)) for room in PRODUCT]
    rows.append(("total", sum(files for _, files, _ in rows), sum(lines for *_, lines in rows)))
    rows.append(("tests", *counted(root, "tests")))
    head = f"{'':<9}{'files':>7}{'lines of code':>15}"
    return "\n".join([head, *(f"{room:<9}{files:>7}{lines:>15}" for room, files, lines in rows)])


if __name__ == "__main__":
    print(table(ROOT))
