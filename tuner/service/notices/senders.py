"""The ways that notifications go: a webhook, signed; and e-mail."""

from __future__ import annotations

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

import httpx

from tuner.core import ConfigError, LinkError
from tuner.destinations import Email, Webhook
from tuner.service.notices.notifications import Notification

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
TEXT_SHOWN = 200


class Sender(Protocol):
    """Sends one notification."""

    def send(self, notification: Notification) -> None:
        """Return once it has been taken. Raises LinkError or ConfigError: it has not."""
        ...


class WebhookSender:
    """Posts Slack-compatible JSON, signed with the secret where there is one.

    The signature is of the timestamp, a dot and the body: HMAC-SHA256 in hexadecimal. The delivery's id
    is the same whenever the same event is sent again. Redirects are not followed.
    """

    def __init__(
        self,
        webhook: Webhook,
        now: Callable[[], datetime],
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._webhook, self._now, self._transport = webhook, now, transport

    def send(self, notification: Notification) -> None:
        """Post it; whatever is answered but 2xx is a failure."""
        body = json.dumps(notification.slack(), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json", "X-Jouletune-Delivery": notification.id}
        if self._webhook.secret_file is not None:
            at = str(int(self._now().timestamp()))
            signature = signed(_secret(self._webhook.secret_file), at, body)
            headers |= {"X-Jouletune-Timestamp": at, "X-Jouletune-Signature": signature}
        try:
            with httpx.Client(timeout=TIMEOUT_S, transport=self._transport) as client:
                answer = client.post(self._webhook.url, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise LinkError(
                f"{self._webhook.shown} does not answer: {error or type(error).__name__}"
            ) from None
        if not answer.is_success:
            raise LinkError(
                f"{self._webhook.shown} answered {answer.status_code}: {answer.text[:TEXT_SHOWN]}"
            )


def signed(secret: str, at: str, body: bytes) -> str:
    """Return the signature that a receiver has to find."""
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


class EmailSender:
    """Sends a plain text by SMTP, over TLS unless told otherwise."""

    def __init__(self, email: Email) -> None:
        self._email = email

    def send(self, notification: Notification) -> None:
        """Send it; recipients that the server refuses are logged, and none of all is a failure."""
        email, message = self._email, EmailMessage()
        message["From"], message["To"] = email.sender, ", ".join(email.to)
        message["Subject"] = notification.title
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
            raise LinkError(f"{email.shown} does not take the mail: {error}") from None
        if refused:
            log.error(
                "event=recipient_refused %s refuses %s; the others have it",
                email.shown,
                ", ".join(refused),
            )

    def _connected(self, context: ssl.SSLContext) -> smtplib.SMTP:
        email = self._email
        if email.tls == "tls":
            return smtplib.SMTP_SSL(email.host, email.port, timeout=TIMEOUT_S, context=context)
        return smtplib.SMTP(email.host, email.port, timeout=TIMEOUT_S)


def _secret(file: Path) -> str:
    try:
        secret = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}", hint="check tuner.toml") from None
    if not secret:
        raise ConfigError(f"{file} is empty", hint="write the secret into it")
    return secret
