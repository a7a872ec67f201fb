"""Documents of study revisions in SQL, read so that one damaged document affects no other study."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Dialect, Text, case, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from db.schema import RevisionRow


class Unparsed(FunctionElement[str]):
    """A JSON column as stored text; bytes on SQLite, which does not check that text is UTF-8."""

    type = Text()
    inherit_cache = True


@compiles(Unparsed)
def _as_text(element: Unparsed, compiler: SQLCompiler, **about: Any) -> str:  # noqa: ANN401
    """Return the SQL that casts a JSON column to text; to bytes on SQLite."""
    kind = "BLOB" if compiler.dialect.name == "sqlite" else "TEXT"
    return f"CAST({compiler.process(element.clauses, **about)} AS {kind})"


DOCUMENT = Unparsed(RevisionRow.document).label("document")
"""A study's document as text: each is parsed separately, so that a damaged one affects no other."""


def parsed(value: ColumnElement[str], dialect: Dialect) -> ColumnElement[str]:
    """Return an SQL value of the document, NULL if the document is not JSON: SQLite fails at such a one."""
    if dialect.name != "sqlite":
        return value
    return case((func.json_valid(RevisionRow.document) == 1, value))
