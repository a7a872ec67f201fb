"""The lines of the tuner's server-sent events, and the place at which a broken stream continues."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from tuner.core import Event

STREAM = "/v1/events/stream"
SILENT_S = 60.0
"""A tuner that sends nothing for this many seconds, not even a keep-alive comment, is gone."""

_EVENT = TypeAdapter(Event)


@dataclass
class Place:
    """The place at which a stream continues after it broke: `last` is the id of the last event read."""

    last: int | None

    @property
    def headers(self) -> dict[str, str]:
        """The header that requests all events after the last one; empty before the first event."""
        return {} if self.last is None else {"Last-Event-ID": str(self.last)}

    def passed(self, event: Event) -> None:
        """Move the place to after this event."""
        self.last = event.id or self.last


@dataclass
class Reader:
    """Assembles events from the lines of a stream."""

    data: str = field(default="", init=False)

    def read(self, line: str) -> Event | None:
        """Read a line; return the event that it completes, or None. Unknown entries are skipped."""
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
