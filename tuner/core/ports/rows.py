"""A list of stored values in which a value that cannot be read hides no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

__all__ = ["StoredRows"]

Row = TypeVar("Row", covariant=True)


class StoredRows(tuple[Row, ...]):
    """The stored values that can be read; `unread` has the reason for each other one, by its name."""

    unread: Mapping[str, str]

    def __new__(
        cls, values: Iterable[Row] = (), unread: Mapping[str, str] | None = None
    ) -> StoredRows[Row]:
        """Return these values."""
        rows = super().__new__(cls, values)
        rows.unread = unread or {}
        return rows
