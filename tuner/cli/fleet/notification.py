"""`jouletune notification`: whether those who are told of events hear of them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from db import open_store
from tuner.cli.answers import Answer, Rows, tells
from tuner.config import load_tuner_config
from tuner.core import Event, NotFound
from tuner.destinations import Email, Subject, Webhook
from tuner.main import utc_now
from tuner.service.notices.notifications import Notification
from tuner.service.notices.senders import EmailSender, Sender, WebhookSender

ConfigFile = Annotated[Path, typer.Option("--config", metavar="FILE", help="tuner.toml.")]


@tells
def list_(config: ConfigFile = Path("tuner.toml")) -> Answer:
    """Show each destination: what it is told of, how far it is, and what keeps it."""
    configured = load_tuner_config(config)
    places: list[Webhook | Email] = [*configured.webhooks]
    places += [configured.email] if configured.email else []
    store = open_store(configured.db, create=False)
    try:
        known = {delivery.destination: delivery for delivery in store.deliveries.list()}
        newest = store.events.newest()
    finally:
        store.close()
    rows = (
        (
            place.name,
            place.shown,
            ", ".join(sorted(place.on)),
            str(newest - known[place.name].event) if place.name in known else "new",
            str(known[place.name].given_up) if place.name in known else "0",
            known[place.name].why if place.name in known else "",
        )
        for place in places
    )
    columns = ("destination", "to", "on", ">events behind", ">given up", "last failure")
    value = [known.get(place.name) or {"destination": place.name} for place in places]
    return Answer(value, Rows(columns, rows, f"{config} has no [[webhook]] and no [email]"))


def test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The webhook's name, or email.")],
    config: ConfigFile = Path("tuner.toml"),
) -> None:
    """Send a test message, and say whether it was taken."""
    configured = load_tuner_config(config)
    senders: dict[str, Sender] = {w.name: WebhookSender(w, utc_now) for w in configured.webhooks}
    if configured.email is not None:
        senders["email"] = EmailSender(configured.email)
    if name not in senders:
        known = ", ".join(senders) or "none"
        raise NotFound(f"{config} has no destination {name!r}", hint=f"destinations: {known}")
    event = Event(at=utc_now(), kind="test", text="a test by an operator")
    tuner = min(configured.names, default=socket.gethostname())
    senders[name].send(Notification(event, Subject.FINISHED, tuner))
    typer.echo(f"{name} accepted the message")
