"""`jouletune notification`: whether those who are told of events hear of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from tuner.destinations import Email, Webhook

commands = typer.Typer()
ConfigFile = Annotated[Path, typer.Option("--config", metavar="FILE", help="tuner.toml.")]


@commands.command("list")
def list_(config: ConfigFile = Path("tuner.toml"), as_json: AsJson = False) -> None:
    """Show each destination: what it is told of, how far it is, and what keeps it."""
    from db import open_store
    from tuner.cli.output import echo_json, echo_table
    from tuner.config import load_tuner_config

    configured = load_tuner_config(config)
    places: list[Webhook | Email] = [*configured.webhooks]
    places += [configured.email] if configured.email else []
    store = open_store(configured.db, create=False)
    try:
        known = {delivery.destination: delivery for delivery in store.deliveries.list()}
        newest = store.events.newest()
    finally:
        store.close()
    if as_json:
        echo_json([known.get(place.name) or {"destination": place.name} for place in places])
        return
    echo_table(
        "destination", "to", "on", ">events behind", ">given up", "last failure",
        rows=(
            (
                place.name,
                place.shown,
                ", ".join(sorted(place.on)),
                str(newest - known[place.name].event) if place.name in known else "new",
                str(known[place.name].given_up) if place.name in known else "0",
                known[place.name].why if place.name in known else "",
            )
            for place in places
        ),
        nothing=f"{config} has no [[webhook]] and no [email]",
    )  # fmt: skip


@commands.command()
def test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The webhook's name, or email.")],
    config: ConfigFile = Path("tuner.toml"),
) -> None:
    """Send a test message, and say whether it was taken."""
    import socket

    from tuner.config import load_tuner_config
    from tuner.core import Event, NotFound
    from tuner.destinations import Subject
    from tuner.main import utc_now
    from tuner.service.notifications import Notification
    from tuner.service.senders import EmailSender, Sender, WebhookSender

    configured = load_tuner_config(config)
    senders: dict[str, Sender] = {w.name: WebhookSender(w, utc_now) for w in configured.webhooks}
    if configured.email is not None:
        senders["email"] = EmailSender(configured.email)
    if name not in senders:
        known = ", ".join(senders) or "none"
        raise NotFound(f"{config} has no destination {name!r}", hint=f"it has: {known}")
    event = Event(at=utc_now(), kind="test", text="somebody tries whether this arrives")
    tuner = min(configured.names, default=socket.gethostname())
    senders[name].send(Notification(event, Subject.FINISHED, tuner))
    typer.echo(f"{name} has taken it")
