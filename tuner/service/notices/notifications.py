"""Notifications: the events that people receive, their text, and their senders."""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import logging
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx2

from tuner import http_clients
from tuner.config import Email, Subject, TunerConfig, Webhook
from tuner.core import ConfigError, Event, LinkError
from tuner.moments import when
from tuner.study.hold_reports import BROKEN
from tuner.study.moves import LIMIT_NOT_MET

Severity = Literal["info", "warning", "critical"]
log = logging.getLogger(__name__)
TIMEOUT_S = 10.0
TEXT_SHOWN = 200
MOST_BYTES = 256 * 1024
PREFIX = "whsec_"
"""The beginning of a Standard Webhooks secret."""


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


class Sender(Protocol):
    """Sends one notification."""

    def send(self, notification: Notification) -> None:
        """Return once the notification was accepted. Raises LinkError, ConfigError: it was not."""
        ...


class WebhookSender:
    """Posts Slack-compatible JSON, signed by the Standard Webhooks specification if there is a secret.

    The id is the same each time an event is sent. Redirects are not followed.
    """

    def __init__(
        self,
        webhook: Webhook,
        now: Callable[[], datetime],
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._webhook, self._now, self._transport = webhook, now, transport

    def send(self, notification: Notification) -> None:
        """Post the notification; every status but 2xx is a failure."""
        body = json.dumps(notification.slack(), ensure_ascii=False).encode()
        at = str(int(self._now().timestamp()))
        headers = {"Content-Type": "application/json", "X-Jouletune-Delivery": notification.id}
        headers |= {"webhook-id": notification.id, "webhook-timestamp": at}
        if self._webhook.secret_file is not None:
            secret = _secret(self._webhook.secret_file)
            headers["webhook-signature"] = standard_signature(secret, notification.id, at, body)
        try:
            inner = self._transport or http_clients.outward(self._webhook.url)
            with http_clients.client(MOST_BYTES, TIMEOUT_S, inner, timeout=TIMEOUT_S) as client:
                answer = client.post(self._webhook.url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise LinkError(
                f"{self._webhook.shown} does not answer: {error or type(error).__name__}"
            ) from None
        if not answer.is_success:
            raise LinkError(
                f"{self._webhook.shown} answered {answer.status_code}: {answer.text[:TEXT_SHOWN]}"
            )


def standard_signature(secret: str, id: str, at: str, body: bytes) -> str:
    """Return the signature of Standard Webhooks; `at` is the time in seconds since 1970.

    A secret `whsec_…` is Base64; any other secret is used unchanged.

    Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

    Raises:
        ConfigError: the part after `whsec_` is not Base64.
    """
    key = secret.encode()
    if secret.startswith(PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except ValueError:
            raise ConfigError(
                f"the webhook's secret begins with {PREFIX} and is not Base64 after it",
                hint=f"write {PREFIX} and 24 to 64 bytes in Base64, or another text",
            ) from None
    mac = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(mac).decode()}"


class EmailSender:
    """Sends a plain text by SMTP, over TLS unless configured otherwise."""

    def __init__(self, email: Email) -> None:
        self._email = email

    def send(self, notification: Notification) -> None:
        """Send the notification and log refused recipients. Raises LinkError: all were refused."""
        email, message = self._email, EmailMessage()
        message["From"], message["To"] = email.sender, ", ".join(email.to)
        message["Subject"] = f"[jouletune] {notification.title}"
        message["X-Jouletune-Severity"] = notification.about.severity
        message["Date"] = format_datetime(notification.event.at)
        message["Message-ID"] = f"<{notification.id.replace('/', '.')}@{email.domain}>"
        message.set_content(f"{notification.text}\n")
        context = ssl.create_default_context()
        password = _secret(email.password_file) if email.user and email.password_file else ""
        if not f"{email.user}{password}".isascii():
            raise ConfigError(
                "user or password of [email] is not ASCII, in which smtplib sends it",
                hint="choose another; a copied one may hold a no-break space",
            )
        try:
            with self._connected(context) as server:
                if email.tls == "starttls":
                    server.starttls(context=context)
                if email.user:
                    server.login(email.user, password)
                refused = server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise LinkError(f"{email.shown} refused the mail: {error}") from None
        if refused:
            log.error(
                "event=recipient_refused %s refused %s; the others received it",
                email.shown,
                ", ".join(refused),
            )

    def _connected(self, context: ssl.SSLContext) -> smtplib.SMTP:
        """Return a connection to the SMTP server, over TLS if configured from the start."""
        email = self._email
        if email.tls == "tls":
            return smtplib.SMTP_SSL(email.host, email.port, timeout=TIMEOUT_S, context=context)
        return smtplib.SMTP(email.host, email.port, timeout=TIMEOUT_S)


def senders_of(
    config: TunerConfig, now: Callable[[], datetime]
) -> list[tuple[Webhook | Email, Sender]]:
    """Return the destinations of a configuration, each with its sender."""
    places: list[tuple[Webhook | Email, Sender]] = [
        (webhook, WebhookSender(webhook, now)) for webhook in config.webhooks
    ]
    return places if config.email is None else [*places, (config.email, EmailSender(config.email))]


def _secret(file: Path) -> str:
    """Return the secret in a file. Raises ConfigError: the file cannot be read, or is empty."""
    try:
        secret = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}", hint="check tuner.toml") from None
    if not secret:
        raise ConfigError(f"{file} is empty", hint="write the secret into it")
    return secret
