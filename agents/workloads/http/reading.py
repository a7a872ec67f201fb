"""Reads one knob's value in force from a service's answer in JSON."""

from __future__ import annotations

from typing import Any

from agents.host.local_http import LocalHttp
from agents.workloads.http.knob_config import ReadCall
from tuner.core import ActuationError, Knob, Value


class UnlistedValue(ActuationError):
    """A knob is at a value that its file does not list."""


class HttpReading:
    """Where one knob's value in force is read."""

    def __init__(self, http: LocalHttp, knob: Knob, call: ReadCall) -> None:
        self._http, self._knob, self._call = http, knob, call

    def read(self) -> Value:
        """Return the value in force. Raises ActuationError, DeviceLost."""
        path, name = self._call.path, f"{self._knob.name} of {self._http.url}"
        response = self._http.call("GET", path)
        try:
            found: Any = response.json()
            for step in self._call.steps:
                found = found[int(step) if isinstance(found, list) else step]
        except (ValueError, LookupError, TypeError):
            raise ActuationError(
                f"{name} is not at {'.'.join(self._call.steps)!r} of the answer from {path}: "
                f"{response.text[:200]}",
                hint="correct its read in the service's file",
            ) from None
        for value in self._knob.values:
            if found == value and isinstance(found, bool) == isinstance(value, bool):
                return value
        raise UnlistedValue(
            f"{name} is at {found!r}, which is not among its values",
            hint="list it in the service's file, or set another",
        )

    def is_at(self, value: Value) -> bool:
        """Return whether this is the value in force. Raises ActuationError, DeviceLost."""
        try:
            return self.read() == value
        except UnlistedValue:
            return False
