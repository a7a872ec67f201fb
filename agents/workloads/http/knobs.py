"""Sets a service's knobs by the calls that its file describes, each read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents.host.local_http import LocalHttp
from agents.workloads.http.config import VALUE, KnobCalls
from tuner.core import ActuationError, Clock, DeviceLost, Setting, Space, Value

LOOK_S = 0.1


class UnlistedValue(ActuationError):
    """A knob is at a value that its file does not list."""


class HttpKnob:
    """Sets and reads one knob of a service."""

    def __init__(self, http: LocalHttp, calls: KnobCalls, clock: Clock) -> None:
        self.knob = calls.knob
        self._http = http
        self._calls = calls
        self._clock = clock

    def read(self) -> Value:
        """Return the value in force. Raises ActuationError, DeviceLost."""
        path, name = self._calls.read_path, f"{self.knob.name} of {self._http.url}"
        response = self._http.call("GET", path)
        try:
            found: Any = response.json()
            for step in self._calls.read_at:
                found = found[int(step) if isinstance(found, list) else step]
        except (ValueError, LookupError, TypeError):
            raise ActuationError(
                f"{name} is not at {'.'.join(self._calls.read_at)!r} of the answer from {path}: "
                f"{response.text[:200]}",
                hint="correct its read in the service's file",
            ) from None
        for value in self.knob.values:
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

    def set(self, value: Value) -> None:
        """Put a value in force and read it back, for as long as a change may take.

        Raises:
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        calls = self._calls
        self._http.call(calls.method, calls.path, filled(calls.template, value))
        end = self._clock.monotonic() + self.knob.cost.seconds
        while True:
            try:
                now: object = self.read()
            except (ActuationError, DeviceLost) as error:  # a change may restart it
                if self._clock.monotonic() >= end:
                    raise
                now = error.message
            if now == value:
                return
            if self._clock.monotonic() >= end:
                raise ActuationError(
                    f"{self._http.url} took {self.knob.name}={value} but is at {now}",
                    hint="its log may say why; where a change takes time, say it as `seconds`",
                )
            self._clock.sleep(LOOK_S)


class HttpKnobs:
    """Sets all knobs of a service, those that change, one by one.

    Those that restart it come first, for a restart loses the others. A service that is at a value of its
    own making is put to a listed one like any other.
    """

    def __init__(self, http: LocalHttp, knobs: Sequence[HttpKnob]) -> None:
        self._knobs = tuple(knobs)
        self.close = http.close
        self.space = Space(tuple(one.knob for one in knobs))

    def read(self) -> Setting:
        """Return what is in force. Raises ActuationError, DeviceLost."""
        return {one.knob.name: one.read() for one in self._knobs}

    def apply(self, setting: Setting) -> None:
        """Put a setting in force.

        Raises:
            UnknownKnob, OutOfRange: it does not fit; nothing was changed.
            ActuationError, DeviceLost: it was refused, or is not in force.
        """
        for name, value in setting.items():
            self.space.knob(name).index(value)
        wanted = [one for one in self._knobs if one.knob.name in setting]
        wanted.sort(key=lambda one: not one.knob.cost.restart)
        for one in wanted:
            if not one.is_at(setting[one.knob.name]):
                one.set(setting[one.knob.name])


class RestartableHttpKnobs(HttpKnobs):
    """Sets the knobs of a service that tells when it was started."""

    def __init__(
        self, http: LocalHttp, knobs: Sequence[HttpKnob], started: Callable[[], str]
    ) -> None:
        super().__init__(http, knobs)
        self._started = started

    def incarnation(self) -> str:
        """Return another word after each start. Raises ActuationError, DeviceLost."""
        return self._started()


def filled(template: Any, value: Value) -> Any:  # noqa: ANN401
    """Return a body with the value itself wherever its place is."""
    if isinstance(template, dict):
        return {key: filled(inner, value) for key, inner in template.items()}
    if isinstance(template, list):
        return [filled(inner, value) for inner in template]
    return value if template == VALUE else template
