"""Where people are told of what happens: the `[[webhook]]` and `[email]` tables of tuner.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tuner import toml
from tuner.core import ConfigError

NAME = re.compile(r"[a-z0-9-]{1,50}")
SUBJECTS = (
    "violation",
    "drift",
    "restore",
    "offline",
    "proposed",
    "finished",
    "limit-not-met",
    "stop",
)
"""See `tuner.service.notifications.Subject`."""
WEBHOOK_KEYS = {"name": str, "url": str, "secret_file": str, "on": list}
EMAIL_KEYS = {
    "host": str,
    "port": int,
    "from": str,
    "to": list,
    "user": str,
    "password_file": str,
    "tls": str,
    "on": list,
}
PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that takes Slack-compatible JSON. `on` are the subjects it is told of."""

    name: str
    url: str
    secret_file: Path | None = None
    on: frozenset[str] = frozenset(SUBJECTS)

    @property
    def shown(self) -> str:
        """The address without its path, which often is the secret."""
        parts = urlsplit(self.url)
        return f"webhook {self.name} ({parts.scheme}://{parts.hostname})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """A mail server and who gets the mail. `tls` is `starttls`, `tls` or `none`."""

    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    user: str = ""
    password_file: Path | None = None
    tls: str = "starttls"
    on: frozenset[str] = frozenset(SUBJECTS)
    name: str = "email"

    @property
    def domain(self) -> str:
        """The sender's domain."""
        return self.sender.rpartition("@")[2].strip("> ")

    @property
    def shown(self) -> str:
        """The server's name."""
        return f"mail server {self.host}:{self.port}"


def read_webhooks(where: str, tables: Iterable[Any]) -> tuple[Webhook, ...]:
    """Read the `[[webhook]]` tables. Raises ConfigError."""
    found: list[Webhook] = []
    for number, table in enumerate(tables, 1):
        here = f"{where}: webhook {number}"
        known = toml.checked(here, table, WEBHOOK_KEYS)
        name, url = _text(here, known, "name"), _text(here, known, "url")
        if not NAME.fullmatch(name) or name == "email" or name in {w.name for w in found}:
            raise ConfigError(
                f"{here}: name cannot be {name!r}",
                hint="use lower-case letters, digits and '-', and each name once",
            )
        _check_url(here, url)
        secret = known.get("secret_file")
        found.append(
            Webhook(
                name=name,
                url=url,
                secret_file=Path(secret) if secret else None,
                on=_on(here, known),
            )
        )
    return tuple(found)


def read_email(where: str, table: Any) -> Email:  # noqa: ANN401  what TOML has there
    """Read the `[email]` table. Raises ConfigError."""
    here = f"{where}: email"
    known = toml.checked(here, table, EMAIL_KEYS)
    tls = known.get("tls", "starttls")
    if tls not in PORTS:
        raise ConfigError(f"{here}: tls cannot be {tls!r}", hint=f"choose {', '.join(PORTS)}")
    to = tuple(known.get("to", ()))
    if not to or not all(isinstance(one, str) and "@" in one for one in to):
        raise ConfigError(f"{here}: to has no addresses", hint='write to = ["ops@example.org"]')
    password = known.get("password_file")
    if known.get("user") and tls == "none":
        raise ConfigError(f"{here}: a password does not travel in the clear", hint="choose a tls")
    return Email(
        host=_text(here, known, "host"),
        port=known.get("port", PORTS[tls]),
        sender=_text(here, known, "from"),
        to=to,
        user=known.get("user", ""),
        password_file=Path(password) if password else None,
        tls=tls,
        on=_on(here, known),
    )


def _text(here: str, known: Mapping[str, Any], key: str) -> str:
    if not known.get(key):
        raise ConfigError(f"{here} has no {key}", hint=f'add {key} = "…"')
    return str(known[key])


def _on(here: str, known: Mapping[str, Any]) -> frozenset[str]:
    wanted = known.get("on", SUBJECTS)
    unknown = [one for one in wanted if one not in SUBJECTS]
    if unknown or not wanted:
        raise ConfigError(
            f"{here}: on cannot hold {unknown[0]!r}" if unknown else f"{here}: on is empty",
            hint=f"choose among {', '.join(SUBJECTS)}",
        )
    return frozenset(wanted)


def _check_url(here: str, url: str) -> None:
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ConfigError(
            f"{here}: url is none", hint='write it like "https://hooks.example.org/…"'
        )
    if parts.scheme == "http" and not local:
        raise ConfigError(
            f"{here}: http to {parts.hostname} could be read on its way", hint="use https"
        )
