"""Destinations of notifications: the `[[webhook]]` and `[email]` tables of tuner.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from tuner.compat import StrEnum
from tuner.core import ConfigError
from tuner.typed_toml import Filled, Table


class Subject(StrEnum):
    """The subject of a notification; `on` in tuner.toml selects among these."""

    VIOLATION = "violation"
    """A hold was ended because it broke a limit."""
    DRIFT = "drift"
    """The metrics of the held setting have drifted from their values when it was chosen."""
    RESTORE = "restore"
    """A device was restored to its original setting for another reason."""
    OFFLINE = "offline"
    """A device's agent no longer polls the tuner, or polls again."""
    PROPOSED = "proposed"
    """A study waits for an operator's approval, or its proposal is withdrawn."""
    FINISHED = "finished"
    """A study holds its result, or was stopped."""
    LIMIT_NOT_MET = "limit-not-met"
    """No setting keeps the limits, not even the baseline."""
    STOP = "stop"
    """All devices were stopped, or the stop was lifted."""


NAMES = "use lower-case letters, digits and '-', and each name once"
PORTS = {"starttls": 587, "tls": 465, "none": 25}


def _address(url: str) -> str:
    """Return the URL of a webhook. Raises ConfigError: it is not https, or http to this machine."""
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise ConfigError("url is not valid", hint='write it like "https://hooks.example.org/…"')
    if parts.scheme == "http" and not local:
        raise ConfigError(f"url: http to {parts.hostname} is not encrypted", hint="use https")
    return url


def _name(name: str) -> str:
    """Return the name of a webhook. Raises ConfigError: it has other characters, or is `email`."""
    if not re.fullmatch(r"[a-z0-9-]{1,50}", name) or name == "email":
        raise ConfigError(f"name cannot be {name!r}", hint=NAMES)
    return name


def _any(on: frozenset[Subject]) -> frozenset[Subject]:
    """Return the subjects of a destination. Raises ConfigError: there are none."""
    if not on:
        raise ConfigError("on is empty", hint=f"choose from {', '.join(Subject)}")
    return on


def _named_once(webhooks: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
    """Return the webhooks. Raises ConfigError: two have the same name."""
    names = [one.name for one in webhooks]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise ConfigError(f"webhook {n + 1}: name cannot be {name!r}", hint=NAMES)
    return webhooks


Subjects = Annotated[frozenset[Subject], AfterValidator(_any)]
PathOrNone = Annotated[Path | None, BeforeValidator(lambda text: text or None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Table):
    """An address that accepts Slack-compatible JSON. `on` are the subjects that it receives."""

    name: Annotated[Filled, AfterValidator(_name)]
    url: Annotated[Filled, AfterValidator(_address)]
    secret_file: PathOrNone = None
    on: Subjects = frozenset(Subject)

    @property
    def shown(self) -> str:
        """The name and the address without its path, which often is a secret."""
        parts = urlsplit(self.url)
        return f"webhook {self.name} ({parts.scheme}://{parts.hostname})"


Webhooks = Annotated[tuple[Webhook, ...], AfterValidator(_named_once)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Email(Table):
    """A mail server and the recipients of the mail. `tls` is `starttls`, `tls` or `none`."""

    host: Filled
    port: int = 0
    sender: Annotated[Filled, Field(alias="from")]
    to: tuple[str, ...] = ()
    user: str = ""
    password_file: PathOrNone = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    on: Subjects = frozenset(Subject)

    name: ClassVar[str] = "email"

    def __post_init__(self) -> None:
        object.__setattr__(self, "port", self.port or PORTS[self.tls])
        if not self.to or not all("@" in one for one in self.to):
            raise ConfigError("to has no addresses", hint='write to = ["ops@example.org"]')
        if self.user and self.tls == "none":
            raise ConfigError(
                "user: a password is not sent without encryption",
                hint="set tls to an encrypted mode",
            )

    @property
    def domain(self) -> str:
        """The sender's domain."""
        return self.sender.rpartition("@")[2].strip("> ")

    @property
    def shown(self) -> str:
        """The server's host and port."""
        return f"mail server {self.host}:{self.port}"
