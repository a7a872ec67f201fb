"""Lines of a service's log, for a person and for the journal."""

from __future__ import annotations

import ast
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import db
import tuner
from tuner.cli.host import logs


def line(template: str, *args: object, exc_info: Any = None) -> dict[str, Any]:  # noqa: ANN401
    record = logging.LogRecord("agents.x", logging.WARNING, "x.py", 1, template, args, exc_info)
    parsed: dict[str, Any] = json.loads(logs.JsonLines().format(record))
    return parsed


@contextmanager
def fresh() -> Iterator[None]:
    """Use a root logger in its initial state within the block."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_a_key_named_in_a_message_is_one_of_its_fields() -> None:
    record = line("event=trial device=%s study=%s trial=%d setting=%r", "gpu0@h", "s1", 7, "a=1")
    assert (record["event"], record["device"], record["study"], record["trial"]) == (
        "trial",
        "gpu0@h",
        "s1",
        7,
    )
    assert record["setting"] == "a=1"
    assert record["severity"] == "warning"
    assert record["message"] == "event=trial device=gpu0@h study=s1 trial=7 setting='a=1'"


def test_a_name_belongs_to_its_value_with_any_text_between() -> None:
    record = line("reaped %d of %.1f %% why=%r", 3, 4.0, "x")
    assert record["why"] == "x"
    assert "event" not in record


def test_a_message_cannot_forge_a_line_or_a_key() -> None:
    text = logs.JsonLines().format(
        logging.LogRecord("a", logging.INFO, "x.py", 1, "event=x why=%s", ('\n{"at": 0}',), None)
    )
    assert "\n" not in text
    assert json.loads(text)["at"] != 0


def test_an_exception_is_logged_with_its_trace() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        assert "ValueError: odd" in line("event=broken", exc_info=sys.exc_info())["exception"]


def test_only_lines_to_the_journal_are_json(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with fresh(), path.open("w") as stream:
        status = os.fstat(stream.fileno())
        logs.begin(
            environment={"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}, stream=stream
        )
        logging.getLogger("here").info("event=ready port=%d", 1)
        stream.flush()
        assert json.loads(path.read_text())["port"] == 1


def test_another_file_than_the_journal_gets_plain_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with fresh(), path.open("w") as stream:
        logs.begin("chatty", environment={"JOURNAL_STREAM": "1:2"}, stream=stream)
        logging.getLogger("here").info("event=ready port=%d", 1)
        logging.getLogger("chatty").info("not told")
        stream.flush()
        assert path.read_text().endswith(" INFO event=ready port=1\n")


def test_every_record_of_the_tuner_names_its_event() -> None:
    levels = {"debug", "info", "warning", "error", "exception", "critical", "log"}
    templates = [
        (str(file), call.lineno, ast.literal_eval(call.args[call.func.attr == "log"]))
        for package in (tuner, db)
        for folder in package.__path__
        for file in Path(folder).rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in levels
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "log"
    ]
    assert len(templates) > 20
    assert [at for at in templates if "event" not in line(at[2])] == []
