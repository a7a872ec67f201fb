"""The messages that a webhook and a mail server receive, and the accepted answers."""

from __future__ import annotations

import json
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from email import message_from_string
from pathlib import Path

import httpx2
import pytest

from tests.builders import START, Time
from tests.errors import raised
from tests.integration.spoken import running
from tuner.config import Email, Webhook
from tuner.core import ConfigError, Event, LinkError
from tuner.service.notices.notifications import (
    VIOLATION,
    EmailSender,
    Notification,
    WebhookSender,
    standard_signature,
)

NOTE = Notification(
    event=Event(
        at=START, kind="hold ended", text="p99 130 > 120 & <b>", study="s1", device="gpu", id=7
    ),
    about=VIOLATION,
    tuner="tuner.test",
    devices=("gpu",),
    base_url="https://tuner.test",
)


def webhook(tmp_path: Path, secret: str = "") -> Webhook:
    file = tmp_path / "secret"
    file.write_text(secret)
    return Webhook(
        name="ops", url="https://hooks.test/T0/secret", secret_file=file if secret else None
    )


def test_a_webhook_receives_signed_json_in_slacks_format(tmp_path: Path) -> None:
    got: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        got.append(request)
        return httpx2.Response(204)

    transport = httpx2.MockTransport(handle)
    WebhookSender(webhook(tmp_path, "s3cret\n"), Time().now, transport).send(NOTE)
    (request,) = got
    body = json.loads(request.content)
    assert body["text"] == (
        "warning: limit broken, hold ended: gpu, study s1 (tuner.test)\n"
        "hold ended: p99 130 &gt; 120 &amp; &lt;b&gt; (2026-01-01 12:00:00Z)\n"
        "https://tuner.test/studies/s1"
    )
    assert body["metadata"]["event_type"] == "jouletune_violation"
    payload = body["metadata"]["event_payload"]
    assert payload["text"] == "p99 130 > 120 & <b>"
    assert (payload["device"], payload["study"], payload["severity"]) == ("gpu", "s1", "warning")
    assert payload["url"] == "https://tuner.test/studies/s1"
    assert request.headers["x-jouletune-delivery"] == "tuner.test/7"
    at = request.headers["webhook-timestamp"]
    assert int(at) == int(START.timestamp())
    assert request.headers["webhook-id"] == "tuner.test/7"
    standard = standard_signature("s3cret", "tuner.test/7", at, request.content)
    assert request.headers["webhook-signature"] == standard


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's libraries."""
    signature = standard_signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "1614265330",
        b'{"test": 2432232314}',
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    with raised(ConfigError, "whsec_"):
        standard_signature("whsec_no base64", "a", "1", b"")


@pytest.mark.parametrize("status", [302, 400, 429, 500])
def test_every_answer_but_success_is_a_failure_without_the_path(
    tmp_path: Path, status: int
) -> None:
    urls: list[str] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        urls.append(str(request.url))
        return httpx2.Response(status, text="no", headers={"Location": "https://hooks.test/other"})

    sender = WebhookSender(webhook(tmp_path), Time().now, httpx2.MockTransport(handle))
    with pytest.raises(LinkError) as failed:
        sender.send(NOTE)
    assert str(status) in failed.value.message and "T0/secret" not in str(failed.value)
    assert len(urls) == 1, "a redirect is not followed"


def test_a_receiver_that_does_not_answer_or_a_missing_secret_is_an_error(tmp_path: Path) -> None:
    def away(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with raised(LinkError, "https://hooks.test"):
        WebhookSender(webhook(tmp_path), Time().now, httpx2.MockTransport(away)).send(NOTE)
    missing = Webhook(name="ops", url="https://hooks.test/", secret_file=tmp_path / "none")
    with raised(ConfigError, "read"):
        WebhookSender(missing, Time().now, httpx2.MockTransport(away)).send(NOTE)


class MailServer(socketserver.StreamRequestHandler):
    """Implements the SMTP that a client needs; refuses recipients that begin with `nobody`."""

    mails: list[tuple[list[str], str]]

    def handle(self) -> None:
        self._say("220 mail.test")
        to: list[str] = []
        while line := self.rfile.readline().decode().strip():
            verb = line[:4].upper()
            if verb == "RCPT" and "nobody" in line:
                self._say("550 no such user")
            elif verb == "DATA":
                self._say("354 go on")
                lines = []
                while (part := self.rfile.readline().decode()) != ".\r\n":
                    lines.append(part)
                self.mails.append((to, "".join(lines)))
                self._say("250 taken")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                to += [line[8:]] if verb == "RCPT" else []
                self._say("250 ok")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[tuple[int, list[tuple[list[str], str]]]]:
    mails: list[tuple[list[str], str]] = []
    handler = type("Handler", (MailServer,), {"mails": mails})
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    with running(server):
        yield server.server_address[1], mails


def mail(port: int, *to: str) -> EmailSender:
    return EmailSender(
        Email(host="127.0.0.1", port=port, sender="jouletune@example.org", to=to, tls="none")
    )


def test_a_mail_describes_the_event_with_its_own_id() -> None:
    with mail_server() as (port, mails):
        mail(port, "ann@example.org", "bob@example.org").send(NOTE)
    ((to, text),) = mails
    assert to == ["<ann@example.org>", "<bob@example.org>"]
    message = message_from_string(text)
    assert message["Subject"] == "[jouletune] limit broken, hold ended: gpu, study s1 (tuner.test)"
    assert message["X-Jouletune-Severity"] == "warning"
    assert message["Message-ID"] == "<tuner.test.7@example.org>"
    assert message["To"] == "ann@example.org, bob@example.org"
    assert "p99 130 > 120 & <b>" in str(message.get_payload())


def test_mail_without_an_accepted_recipient_fails_and_partly_accepted_mail_is_not_resent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with mail_server() as (port, mails):
        mail(port, "ann@example.org", "nobody@example.org").send(NOTE)
        assert len(mails) == 1 and "refused nobody@example.org" in caplog.text
        with pytest.raises(LinkError, match="no such user"):
            mail(port, "nobody@example.org").send(NOTE)
    assert len(mails) == 1


def test_a_mail_server_that_does_not_answer_or_has_no_tls_is_an_error() -> None:
    with mail_server() as (port, mails):
        secure = Email(host="127.0.0.1", port=port, sender="a@b.c", to=("d@e.f",), tls="starttls")
        with raised(LinkError, "STARTTLS"):
            EmailSender(secure).send(NOTE)
        with raised(ConfigError, "user", "ASCII"):
            EmailSender(replace(secure, user="a\u00a0b")).send(NOTE)
    assert mails == []
    with raised(LinkError, "127.0.0.1", port):
        mail(port, "ann@example.org").send(NOTE)
