"""`jouletune notification`: destinations of notifications, and tests of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from db import open_store
from tuner.cli.answers import Answer, Rows, lists, with_json
from tuner.config import Email, Webhook, load_tuner_config
from tuner.core import Event, NotFound
from tuner.main import name_of, utc_now
from tuner.service.notices.notifications import BY_KIND, Notification, senders_of

ConfigFile = Annotated[Path, typer.Option("--config", metavar="FILE", help="tuner.toml.")]


@lists
def list_(config: ConfigFile = Path("tuner.toml")) -> Answer:
    """Show each destination: undelivered events, its last failure, and its subjects."""
    configured = load_tuner_config(config)
    places: list[Webhook | Email] = [*configured.webhooks]
    places += [configured.email] if configured.email else []
    store = open_store(configured.db, create=False)
    try:
        deliveries = {delivery.destination: delivery for delivery in store.deliveries.list()}
        newest = store.events.newest()
    finally:
        store.close()
    rows = (
        (
            place.name,
            str(newest - deliveries[place.name].event) if place.name in deliveries else "new",
            str(deliveries[place.name].given_up) if place.name in deliveries else "0",
            deliveries[place.name].why if place.name in deliveries else "–",
            place.shown,
            ", ".join(sorted(place.on)),
        )
        for place in places
    )
    columns = ("destination", ">events behind", ">given up", "~last failure", "+to", "+subjects")
    value = [deliveries.get(place.name) or {"destination": place.name} for place in places]
    return Answer(value, Rows(columns, rows, f"{config} has no [[webhook]] and no [email]"))


@with_json
def test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The webhook's name, or email.")],
    config: ConfigFile = Path("tuner.toml"),
) -> Answer:
    """Send a test message to a destination. Exits with 2 if it is not accepted."""
    configured = load_tuner_config(config)
    senders = {place.name: sender for place, sender in senders_of(configured, utc_now)}
    if name not in senders:
        names = ", ".join(senders) or "none"
        raise NotFound(f"{config} has no destination {name!r}", hint=f"it has: {names}")
    event = Event(at=utc_now(), kind="test", text="a test of this destination")
    senders[name].send(
        Notification(
            event=event,
            about=BY_KIND["test"],
            tuner=name_of(configured),
            base_url=configured.base_url,
        )
    )
    return Answer({"destination": name, "delivered": True}, f"{name} accepted the test message")
