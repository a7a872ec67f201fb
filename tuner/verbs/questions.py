"""The filters of a history as users type them; the command line, the API and the clients share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime, timezone
from typing import TypeVar

from db.history import HistoryQuestion
from tuner.compat import StrEnum
from tuner.core import InvalidInput, TrialState, Verdict
from tuner.moments import moment

Word = TypeVar("Word", bound=StrEnum)


def narrowed(
    question: HistoryQuestion | None, narrow: Mapping[str, object], mark: str = ""
) -> HistoryQuestion:
    """Return a question with further filters; `mark` stands before a filter's name in errors.

    Raises:
        InvalidInput: a filter is unknown, or its value is not a known word or a time.
    """
    names = [f.name for f in fields(HistoryQuestion)]
    now, filters = datetime.now(timezone.utc), dict[str, object]()
    for name, value in narrow.items():
        if name not in names:
            raise InvalidInput(
                f"a history has no filter {name!r}", hint=f"filter by {', '.join(names)}"
            )
        filters[name] = parsed(name, value, now, mark + name) if isinstance(value, str) else value
    return replace(question or HistoryQuestion(), **filters)  # type: ignore[arg-type]


def parsed(name: str, text: str, now: datetime, called: str = "") -> object:
    """Return the value of a filter from its text; `called` is the filter's name in errors.

    Raises:
        InvalidInput: the text is not a known word or a time.
    """
    called = called or name
    if name in ("since", "until"):
        return moment(called, text, now)
    if name == "verdict":
        return _word(called, Verdict, text)
    if name == "state":
        return _word(called, TrialState, text)
    return text


def _word(name: str, words: type[Word], text: str) -> Word:
    """Return the member of an enumeration with this text. Raises InvalidInput, which lists them."""
    try:
        return words(text)
    except ValueError:
        listed = ", ".join(words)
        raise InvalidInput(f"{name} cannot be {text!r}", hint=f"choose {listed}") from None
