"""The count of number literals in files: `python -m tests.literals FILE_OR_FOLDER …`.

All numeric literals other than 0, ±1 and 2 count: in tables, defaults and expressions. A number written
twice counts twice. Numbers in docstrings and other text do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PLAIN = (0, 1, -1, 2)
JUDGEMENT = ("tuner/bo", "tuner/guard.py")
"""The files counted by default: each number there is a choice that needs a reason."""

Number = int | float | complex


def literals(source: str) -> list[tuple[int, Number]]:
    """Return the line and the value of every counted number, in their order."""
    places = [(line, number) for line, number in _numbers(ast.parse(source)) if number not in PLAIN]
    return sorted(places, key=lambda place: place[0])


def _numbers(node: ast.AST) -> Iterator[tuple[int, Number]]:
    """Yield the numbers below a node, each with its sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        for line, number in _numbers(node.operand):
            yield line, -number if isinstance(node.operand, ast.Constant) else number
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, Number) and not isinstance(node.value, bool):
            yield node.lineno, node.value
        return
    for child in ast.iter_child_nodes(node):
        yield from _numbers(child)


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the given Python files, and those in the given folders."""
    return [
        file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]


def table(paths: Iterable[Path]) -> str:
    """Return each file's count, then the sum."""
    rows = [
        (str(file), len(literals(file.read_text(encoding="utf-8")))) for file in files_of(paths)
    ]
    rows = [*((name, count) for name, count in rows if count), ("total", sum(n for _, n in rows))]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}{count:>6}" for name, count in rows)


if __name__ == "__main__":
    print(table(map(Path, sys.argv[1:] or JUDGEMENT)))
