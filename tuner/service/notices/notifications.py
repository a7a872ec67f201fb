"""Notifications: the events that people receive, and their text."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Literal

from tuner.core import Event
from tuner.destinations import Subject
from tuner.moments import when
from tuner.study.moves import LIMIT_NOT_MET
from tuner.study.reports.hold_reports import BROKEN

Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class About:
    """The meaning of a kind of event: its subject, its headline, and its severity."""

    subject: Subject
    headline: str
    severity: Severity


BY_KIND = {
    "baseline drifted": About(Subject.DRIFT, "baseline drifted", "info"),
    "drift": About(Subject.DRIFT, "held setting drifted", "info"),
    "hold ended": About(Subject.RESTORE, "hold ended", "warning"),
    "paused": About(Subject.RESTORE, "paused", "warning"),
    "offline": About(Subject.OFFLINE, "offline", "warning"),
    "online": About(Subject.OFFLINE, "recovered", "info"),
    "proposed": About(Subject.PROPOSED, "awaiting approval", "info"),
    "withdrawn": About(Subject.PROPOSED, "proposal withdrawn", "info"),
    "holding": About(Subject.FINISHED, "holding", "info"),
    "stopped": About(Subject.FINISHED, "stopped", "info"),
    "stop-all": About(Subject.STOP, "all devices stopped", "critical"),
    "stop-all lifted": About(Subject.STOP, "recovered: stop lifted", "info"),
    "release": About(Subject.STOP, "device released", "warning"),
    "release lifted": About(Subject.STOP, "recovered: release lifted", "info"),
    "test": About(Subject.FINISHED, "test", "info"),
}
"""By the event's kind. A device that an order releases has no row: the order's own event is sent."""
VIOLATION = About(Subject.VIOLATION, "limit broken, hold ended", "warning")
UNMET = About(Subject.LIMIT_NOT_MET, "limit not met", "critical")


def about(event: Event) -> About | None:
    """Return the meaning of an event, None if it is not sent."""
    if event.kind == "hold ended" and event.text.endswith(BROKEN):
        return VIOLATION
    if event.kind == "holding" and event.text.startswith(LIMIT_NOT_MET):
        return UNMET
    return BY_KIND.get(event.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """An event for people.

    `devices` are those of the event or of its study, `tuner` is the sender's name. `base_url` is the
    address of the tuner's pages; empty for no link.
    """

    event: Event
    about: About
    tuner: str
    devices: tuple[str, ...] = ()
    base_url: str = ""

    @property
    def id(self) -> str:
        """The id of the message, the same each time the event is sent."""
        return f"{self.tuner}/{self.event.id}"

    @property
    def title(self) -> str:
        """The subject in one line: `recovered: gpu0@host, study 3f2a91c0 (tuner.example.org)`."""
        study = f"study {self.event.study}" if self.event.study else ""
        names = ", ".join(filter(None, (*self.devices, study)))
        return f"{self.about.headline}{f': {names}' if names else ''} ({self.tuner})"

    @property
    def link(self) -> str:
        """The page of the study, else of the fleet; empty without a `base_url`."""
        if not self.base_url:
            return ""
        path = f"/studies/{self.event.study}" if self.event.study else "/"
        return f"{self.base_url.rstrip('/')}{path}"

    @property
    def text(self) -> str:
        """The event with its time and its link."""
        line = f"{self.event.kind}: {self.event.text} ({when(self.event.at)})"
        return f"{line}\n{self.link}" if self.link else line

    def slack(self) -> dict[str, Any]:
        """Return the message as Slack takes it, with all fields as its `metadata`.

        Source: https://docs.slack.dev/messaging/formatting-message-text (characters to escape) and
        https://docs.slack.dev/messaging/message-metadata.
        """
        event = self.event
        payload = {
            "id": self.id,
            "at": event.at.isoformat(),
            "kind": event.kind,
            "severity": self.about.severity,
            "subject": self.title,
            "text": event.text,
            "study": event.study,
            "device": event.device,
            "devices": list(self.devices),
            "url": self.link,
            "tuner": self.tuner,
        }
        shown = html.escape(f"{self.about.severity}: {self.title}\n{self.text}", quote=False)
        event_type = f"jouletune_{self.about.subject.replace('-', '_')}"
        return {"text": shown, "metadata": {"event_type": event_type, "event_payload": payload}}
