"""Each row by itself: what goes wrong with one is that row's content, and an event once per state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tuner.bounds import redacted
from tuner.core import StoreError, TuningError

log = logging.getLogger(__name__)

R = TypeVar("R")
MOST_TEXT = 300
"""Of an error's own words, which may hold all of what was wrong."""


@dataclass
class EachRow:
    """The rows of one list, page, scrape or periodic job over studies, groups, series or devices.

    `what` names the work in events and in the log. `note` writes an event: its text, and the row's name.
    """

    what: str
    note: Callable[[str, str], None] = lambda _text, _row: None
    _wrong: dict[str, str] = field(default_factory=dict)

    def each(self, row: str, work: Callable[[], R], otherwise: Callable[[str], R]) -> R:
        """Return what the work of a row comes to, or `otherwise` by what went wrong with it.

        Raises:
            StoreError: the database does not answer, which is no row's fault.
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


def in_words(error: Exception) -> str:
    """Return an error as a row shows it: its text, or its kind where it is not one of ours."""
    text = str(error) if isinstance(error, TuningError) else f"{type(error).__name__}: {error}"
    return redacted(text)[:MOST_TEXT]
