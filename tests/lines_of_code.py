"""How many lines of code there are, a row a room: `python -m tests.lines_of_code`."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
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


def counted(files: Iterable[Path]) -> tuple[int, int]:
    """Return how many files these are, and their lines of code."""
    lines = [lines_of_code(path) for path in files]
    return len(lines), sum(lines)


def rooms(root: Path, package: str) -> Iterator[tuple[str, int, int]]:
    """Yield a package as a whole, then its own files and each of its folders where it has some."""
    top = root / package
    yield package, *counted(top.rglob("*.py"))
    folders = sorted(path for path in top.iterdir() if any(path.rglob("*.py")) and path.is_dir())
    if folders:
        yield f"  {package}/*.py", *counted(top.glob("*.py"))
    for folder in folders:
        yield f"  {package}/{folder.name}", *counted(folder.rglob("*.py"))


def table(root: Path) -> str:
    """Return the count of each room, of the product, and, apart from it, of the tests."""
    rows = [row for package in PRODUCT for row in rooms(root, package)]
    whole = [(files, lines) for room, files, lines in rows if room in PRODUCT]
    rows.append(("total", sum(files for files, _ in whole), sum(lines for _, lines in whole)))
    rows.append(("tests", *counted((root / "tests").rglob("*.py"))))
    head = f"{'':<24}{'files':>7}{'lines of code':>15}"
    return "\n".join([head, *(f"{room:<24}{files:>7}{lines:>15}" for room, files, lines in rows)])


if __name__ == "__main__":
    print(table(ROOT))
