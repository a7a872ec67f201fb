"""Count lines of code. `python -m tests.lines_of_code` prints the ledger's counts beside their goals."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(text: str) -> int:
    """Return the number of lines with code, without those of only comments, docstrings or blanks."""
    docs: set[int] = set()
    for statement in _statements(ast.parse(text)):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            docs |= set(range(statement.lineno, (statement.end_lineno or 0) + 1))
    rows = [(n, row.strip()) for n, row in enumerate(text.split("\n"), 1) if n not in docs]
    if not any('"""' in row or "'''" in row for _, row in rows):
        return sum(bool(row) and row[0] != "#" for _, row in rows)
    # A multi-line string may have blank lines, and lines that look like comments.
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docs)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, ())
        for child in inner if isinstance(inner, list) else ():
            yield child
            yield from _statements(child)


if __name__ == "__main__":
    from tests.ledger import ROOT, counted, table

    print(table(counted(ROOT)))
