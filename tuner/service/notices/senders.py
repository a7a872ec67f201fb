"""Senders of notifications: a signed webhook, and e-mail."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import smtplib
import ssl
from collections.abc import Callable
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Protocol

import httpx2

from tuner import http_clients
from tuner.core import ConfigError, LinkError
from tuner.destinations import Email, Webhook
from tuner.service.notices.notifications import Notification

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
TEXT_SHOWN = 200
MOST_BYTES = 256 * 1024
PREFIX = "whsec_"
"""The beginning of a Standard Webhooks secret."""


class Sender(Protocol):
    """Sends one notification."""

    def send(self, notification: Notification) -> None:
        """Return once the notification was accepted. Raises LinkError, ConfigError: it was not."""
        ...


class WebhookSender:
    """Posts Slack-compatible JSON, signed by the Standard Webhooks specification if there is a secret.

    For one release it also sends the former headers: X-Jouletune-Signature is the HMAC-SHA256 of the
    timestamp, a dot and the body, in hexadecimal. The id is the same each time an event is sent.
    Redirects are not followed.
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
            headers |= {
                "X-Jouletune-Timestamp": at,
                "X-Jouletune-Signature": signed(secret, at, body),
            }
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


def signed(secret: str, at: str, body: bytes) -> str:
    """Return the signature of the former headers."""
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


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
        try:
            with self._connected(context) as server:
                if email.tls == "starttls":
                    server.starttls(context=context)
                if email.user:
                    password = _secret(email.password_file) if email.password_file else ""
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


def _secret(file: Path) -> str:
    """Return the secret in a file. Raises ConfigError: the file cannot be read, or is empty."""
    try:
        secret = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}", hint="check tuner.toml") from None
    if not secret:
        raise ConfigError(f"{file} is empty", hint="write the secret into it")
    return secret
