"""Reads one knob's value in force: from a JSON answer of the service, or from a command's output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents.host.http.local_http import LocalHttp
from agents.host.processes.commands import run_argv
from agents.host.service_files import last_match
from agents.workloads.http.knob_config import ReadTable, written
from tuner.core import ActuationError, Clock, DeviceLost, Knob, MeasurementError, Value, reraised

COMMAND_S = 30.0
LOOK_S = 0.1
LAST_WORDS = 200


class UnlistedValue(ActuationError):
    """A knob is at a value that its file does not list."""


ReadValue = Callable[[], Value]
"""Returns one knob's value in force; raises ActuationError, DeviceLost."""


def value_in_answer(http: LocalHttp, knob: Knob, call: ReadTable) -> Value:
    """Return a knob's value in force from a path of the service. Raises ActuationError, DeviceLost."""
    path, name = call.path, f"{knob.name} of {http.url}"
    response = http.call("GET", path)
    try:
        current = at(response.json(), call.steps)
    except (ValueError, LookupError, TypeError):
        raise ActuationError(
            f"{name} is not at {call.json!r} of the response from {path}: "
            f"{response.text[:LAST_WORDS]}",
            hint="correct `read` in the service's file",
        ) from None
    for value in knob.values:
        if current == value and isinstance(current, bool) == isinstance(value, bool):
            return value
    raise unlisted(name, current)


def value_in_output(knob: Knob, source: ReadTable) -> Value:
    """Return a knob's value in force from the output of a command. Raises ActuationError."""
    text, pattern = run_argv(source.command, COMMAND_S), source.pattern
    with reraised(ActuationError, MeasurementError):
        match = text.strip() if pattern is None else last_match(pattern, text)
    if match is None:
        raise ActuationError(
            f"{' '.join(source.command)} prints no match of {pattern and pattern.pattern!r}: "
            f"{text.strip()[-LAST_WORDS:]}",
            hint="correct `read` in the service's file",
        )
    for value in knob.values:
        if means(match, value):
            return value
    raise unlisted(knob.name, match)


def unlisted(name: str, value: object) -> UnlistedValue:
    """Return the error of a knob at a value that another program has set."""
    return UnlistedValue(
        f"{name} is at {value!r}, which is not among its values",
        hint="add it in the service's file, or set another value",
    )


def means(text: str, value: Value) -> bool:
    """Return whether a text means a value: as it is written, or as the same number."""
    if isinstance(value, bool | str):
        return text == written(value)
    try:
        return float(text) == value
    except ValueError:
        return False


def at(node: Any, steps: Sequence[str]) -> Any:  # noqa: ANN401
    """Return the value at a path in a JSON. Raises LookupError, TypeError, ValueError."""
    for step in steps:
        node = node[int(step) if isinstance(node, list) else step]
    return node


def is_at(read: ReadValue, value: Value) -> bool:
    """Return whether this is the value in force. Raises ActuationError, DeviceLost."""
    try:
        return read() == value
    except UnlistedValue:
        return False


def settle(who: str, knob: Knob, read: ReadValue, value: Value, clock: Clock) -> None:
    """Wait until a set value reads back, for as long as the knob's change may take.

    Raises:
        ActuationError, DeviceLost: it does not.
    """
    end = clock.monotonic() + knob.cost.seconds
    while True:
        try:
            now: object = read()
        except (ActuationError, DeviceLost) as error:  # a change may restart it
            if clock.monotonic() >= end:
                raise
            now = error.message
        if now == value:
            return
        if clock.monotonic() >= end:
            raise ActuationError(
                f"{who} accepted {knob.name}={value} but uses {now}",
                hint="check its log; if a change takes time, set `seconds`",
            )
        clock.sleep(LOOK_S)
