"""An error of a row becomes the content of that row, and an event at each change of its state."""

from __future__ import annotations

import pytest

from tuner.core import InvalidInput, StoreError
from tuner.rows import EachRow


def fail(error: Exception) -> str:
    raise error


def test_an_error_is_its_rows_content_and_an_event_once_per_state() -> None:
    events: list[str] = []
    rows = EachRow("the list", lambda text, _: events.append(text))
    for _ in range(3):
        shown = [
            rows.each("a", lambda: fail(OverflowError("too large")), lambda why: f"! {why}"),
            rows.each("b", lambda: "fine", lambda why: f"! {why}"),
        ]
        assert shown == ["! OverflowError: too large", "fine"]
    assert events == ["the list of a failed: OverflowError: too large"]
    assert rows.each("a", lambda: "fine", str) == "fine"
    assert events[1:] == ["the list of a works again"]
    rows.each("a", lambda: fail(InvalidInput("wrong", hint="mend it")), str)
    assert events[2:] == ["the list of a failed: wrong; mend it"]


def test_a_silent_database_is_not_the_fault_of_a_row() -> None:
    with pytest.raises(StoreError):
        EachRow("the list").each("a", lambda: fail(StoreError("gone")), str)


def test_no_row_shows_the_databases_address() -> None:
    shown = EachRow("the list").each(
        "a", lambda: fail(ValueError("in postgresql+psycopg://u:p@h/n: wrong")), str
    )
    assert "wrong" in shown and "psycopg" not in shown and "h/n" not in shown
