"""The tuner's server-sent events, line by line, and where a stream continues."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from tuner.core import Event

STREAM = "/v1/events/stream"
SILENT_S = 60.0
"""A tuner that says nothing for so long, not even that there is nothing, is gone."""

_EVENT = TypeAdapter(Event)


@dataclass
class Place:
    """The event after which a stream continues once it broke."""

    last: int | None

    @property
    def headers(self) -> dict[str, str]:
        """What asks for all that came after it."""
        return {} if self.last is None else {"Last-Event-ID": str(self.last)}

    def passed(self, event: Event) -> None:
        """Continue after this event."""
        self.last = event.id or self.last


@dataclass
class Reader:
    """Puts the lines of a stream together."""

    data: str = field(default="", init=False)

    def read(self, line: str) -> Event | None:
        """Take a line; return the event that it ends, if it ends one of ours."""
        name, _, value = line.partition(": ")
        if name == "data":
            self.data = value
        if line or not self.data:
            return None
        data, self.data = self.data, ""
        try:
            return _EVENT.validate_json(data)
        except ValidationError:
            return None
