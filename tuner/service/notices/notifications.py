"""What of the operator's log people are told of, and in which words."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from tuner.core import Event
from tuner.destinations import Subject
from tuner.study.moves import LIMIT_NOT_MET

BROKEN = "windows in a row"
"""How a hold's end says that its limit was broken: see `agents.holding.holder`."""


BY_KIND = {
    "baseline drifted": Subject.DRIFT,
    "drift": Subject.DRIFT,
    "hold ended": Subject.RESTORE,
    "paused": Subject.RESTORE,
    "offline": Subject.OFFLINE,
    "online": Subject.OFFLINE,
    "proposed": Subject.PROPOSED,
    "withdrawn": Subject.PROPOSED,
    "holding": Subject.FINISHED,
    "stopped": Subject.FINISHED,
    "stop-all": Subject.STOP,
    "stop-all lifted": Subject.STOP,
}


def subject_of(event: Event) -> Subject | None:
    """Return what people are told an event is about, None where it is not for them."""
    if event.kind == "hold ended" and event.text.endswith(BROKEN):
        return Subject.VIOLATION
    if event.kind == "holding" and event.text.startswith(LIMIT_NOT_MET):
        return Subject.LIMIT_NOT_MET
    return BY_KIND.get(event.kind)


@dataclass(frozen=True, slots=True)
class Notification:
    """An event that people are told of. `tuner` is the name of who tells."""

    event: Event
    subject: Subject
    tuner: str

    @property
    def id(self) -> str:
        """The same whenever the same event is sent again."""
        return f"{self.tuner}/{self.event.id}"

    @property
    def title(self) -> str:
        """One line: what, and whose."""
        about = " ".join(name for name in (self.event.study, self.event.device) if name)
        return f"jouletune {self.tuner}: {self.subject}{f' [{about}]' if about else ''}"

    @property
    def text(self) -> str:
        """What happened and when, in words."""
        return f"{self.event.kind}: {self.event.text} ({self.event.at:%Y-%m-%d %H:%M:%S} UTC)"

    def slack(self) -> dict[str, Any]:
        """Return the message as Slack takes it, with all fields as its `metadata`.

        Source: https://docs.slack.dev/messaging/formatting-message-text (what is to be escaped) and
        https://docs.slack.dev/messaging/message-metadata.
        """
        event = self.event
        payload = {
            "id": self.id,
            "at": event.at.isoformat(),
            "kind": event.kind,
            "text": event.text,
            "study": event.study,
            "device": event.device,
            "tuner": self.tuner,
        }
        shown = html.escape(f"{self.title}\n{self.text}", quote=False)
        event_type = f"jouletune_{self.subject.replace('-', '_')}"
        return {"text": shown, "metadata": {"event_type": event_type, "event_payload": payload}}
