"""A row that cannot be read, or on which work fails, hides no other: its error becomes its content.

The error is also an event, when it starts and when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from tuner.bounds import redacted
from tuner.core import StoreError, TuningError, Unreadable, first_fault

log = logging.getLogger(__name__)

R = TypeVar("R")
MOST_TEXT = 300
"""The most characters of an error's text, which may contain the whole faulty input."""


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


@dataclass
class EachRow:
    """The rows of one list, page, scrape or periodic job over studies, groups, series or devices.

    `what` names the work in events and in the log. `note` writes an event: its text, and the row's name.
    """

    what: str
    note: Callable[[str, str], None] = lambda _text, _row: None
    _wrong: dict[str, str] = field(default_factory=dict)

    def each(self, row: str, work: Callable[[], R], otherwise: Callable[[str], R]) -> R:
        """Return the result of a row's work, or `otherwise` of the error's text if it fails.

        Raises:
            StoreError: the database does not answer, which is not the fault of a row.
        """
        try:
            done = work()
        except StoreError:
            raise
        except Exception as error:  # one bad row must not end the work on the others
            why = in_words(error)
            if self._wrong.get(row) != why:
                self._wrong[row] = why
                bug = not isinstance(error, TuningError)
                log.warning(
                    "event=row_failed work=%r row=%s: %s", self.what, row, why, exc_info=bug
                )
                self.note(f"{self.what} of {row} failed: {why}", row)
            return otherwise(why)
        if self._wrong.pop(row, None) is not None:
            log.info("event=row_works work=%r row=%s", self.what, row)
            self.note(f"{self.what} of {row} works again", row)
        return done

    def unread(self, rows: StoredRows[Any], shown: Callable[[str, str], R]) -> list[R]:
        """Return the contents of stored rows that cannot be read, of their names and reasons."""
        return [
            self.each(name, partial(_refuse, why), partial(shown, name))
            for name, why in rows.unread.items()
        ]


def _refuse(why: str) -> Any:  # noqa: ANN401  it never returns
    """Raise Unreadable."""
    raise Unreadable(why)


def in_words(error: Exception) -> str:
    """Return an error as a row shows it: its text, with the class before it if it is not one of ours."""
    text = redacted(str(error) if isinstance(error, TuningError) else first_fault(error))
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"
