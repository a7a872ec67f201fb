"""The tuner's configuration: tuner.toml, read strictly, with destinations of notifications and series."""

from __future__ import annotations

import csv
import ipaddress
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from tuner import toml
from tuner.compat import StrEnum
from tuner.core import (
    ALL_DAY,
    DEVICE_FIELDS,
    ConfigError,
    HourRow,
    InvalidInput,
    TimeSeries,
    parse_hours,
    reraised,
)
from tuner.foreign_bodies import parsed
from tuner.moments import moment
from tuner.tls import ServerTls
from tuner.typed_toml import Filled, Table, TomlText

WAYS = ("constant", "rows", "csv", "url")
MOST_POINTS = 100_000
HOW = 'write a number, or a table with one of rows, csv, url: { rows = [{ hours = "22-6", value = 0.2 }] }'
PASSWORD = re.compile(r"^[^:/]*://[^:/]*:[^@]+@|[?&](ssl)?password=", re.IGNORECASE)
"""A password in a URL, as SQLAlchemy reads it (it may have `/` and `?`), or in libpq's options."""
HOST_NAME = re.compile(r"[\w.-]+|[0-9a-f:]+", re.ASCII | re.IGNORECASE)
METRIC_LABEL = re.compile(r"[a-z_][a-z0-9_]*")
MOST_METRIC_LABELS = 5
OWN_METRIC_LABELS = DEVICE_FIELDS | {
    "device", "health", "instance", "job", "knob", "level", "metric", "origin", "study", "value",
}  # fmt: skip
"""Labels that the series of a device have already."""
ADDRESS = re.compile(r"https?://([\w.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^?#\s]*)?")
"""An address with a host, without a password and without a query, for these may be logged."""
SUGGEST = re.compile(r"local(:[1-9][0-9]{0,2})?|here|ray://\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerConfig(Table):
    """The tuner's configuration, with defaults.

    `tuning_hours` are the hours in which trials may run, local time, as `HH-HH` (22-6 goes over midnight).
    They limit control windows of a hold, too, but not the hold. `keep_days` is the time in days for which
    observations and events are kept; trials are never pruned. `names` are the host names to which the tuner
    answers, besides this machine's names for loopback. `tls_cert`, `tls_key` and `client_ca` are its
    certificate, its key, and the authority of agents' certificates. `behind_proxy` is true if a proxy in
    front of it speaks TLS. `webhooks` and `email` receive notifications, with links below `base_url`, the
    address of the tuner's pages. `price_per_kwh`, in `currency`, and `co2e_g_per_kwh` are the price and the
    emissions of a kilowatt-hour, constant or over time; savings are also reported in them. `series` are
    other values over time by name, such as the watts of a budget. `metric_labels` are labels of agent.toml
    that are added to a device's series on /metrics. `suggest` is the place where suggestions are computed:
    `local` in a few processes of this machine, `local:N` in N of them, `here` in the tuner's process, or
    `ray://HOST:PORT` on a Ray cluster. `otel` is the address of an
    OpenTelemetry collector, which receives the last windows.
    """

    db: str = field(default="sqlite:///jouletune.sqlite", repr=False)
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    base_url: str = ""
    otel: str = ""
    port: int = 8790
    token_file: Path = Path("token")
    port_file: Path | None = None
    lease_s: float = 30.0
    abandon_s: float = 900.0
    tuning_hours: str = ALL_DAY
    keep_days: int = 90
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    behind_proxy: bool = False
    webhooks: Annotated[Webhooks, Field(alias="webhook")] = ()
    email: Email | None = None
    price_per_kwh: SeriesTable | None = None
    currency: str = "EUR"
    co2e_g_per_kwh: SeriesTable | None = None
    series: dict[str, SeriesTable] = field(default_factory=dict)
    metric_labels: tuple[str, ...] = ()
    suggest: str = "local"

    def __post_init__(self) -> None:
        ServerTls(cert=self.tls_cert, key=self.tls_key, client_ca=self.client_ca)
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port cannot be {self.port}", hint="choose 0 (any) to 65535")
        if self.lease_s <= 0.0 or self.abandon_s <= 0.0 or self.keep_days < 1:
            raise ConfigError("lease_s, abandon_s and keep_days must be positive")
        for name in self.names:
            if not isinstance(name, str) or not HOST_NAME.fullmatch(name):
                raise ConfigError(
                    f"names cannot hold {name!r}",
                    hint='write host names without scheme and port: ["tuner.example.org"]',
                )
        for key, address in (("base_url", self.base_url), ("otel", self.otel)):
            if address and not ADDRESS.fullmatch(address):
                raise ConfigError(
                    f"{key} is not an address of HTTP",
                    hint='write it like "https://tuner.example.org:4318", without a password or a query',
                )
        if len(self.metric_labels) > MOST_METRIC_LABELS:
            raise ConfigError(
                f"metric_labels has {len(self.metric_labels)} labels",
                hint=f"name {MOST_METRIC_LABELS} at most; each makes the series of Prometheus larger",
            )
        for name in self.metric_labels:
            if not METRIC_LABEL.fullmatch(name) or name in OWN_METRIC_LABELS:
                raise ConfigError(
                    f"metric_labels cannot hold {name!r}",
                    hint="name labels of agent.toml in small letters, digits and '_' that no series "
                    f"has already ({', '.join(sorted(OWN_METRIC_LABELS))})",
                )
        if not SUGGEST.fullmatch(self.suggest):
            raise ConfigError(
                f"`suggest` cannot be {self.suggest!r}",
                hint="write local, local:N, here, or ray://HOST:PORT",
            )
        with reraised(ConfigError, InvalidInput):
            parse_hours(self.tuning_hours, "tuning_hours")

    @property
    def tls(self) -> ServerTls:
        """The tuner's certificate, and the authority of its clients' certificates."""
        return ServerTls(cert=self.tls_cert, key=self.tls_key, client_ca=self.client_ca)

    def check_reach(self) -> None:
        """Return quietly if tokens are sent over TLS or loopback, and the certificates can be used.

        Raises:
            ConfigError: tokens would be sent in clear text, or a certificate cannot be used.
        """
        self.tls.check()
        if not (self.loopback or self.tls.spoken or self.behind_proxy):
            raise ConfigError(
                f"no TLS on {self.host}: tokens would be sent in clear text and could be stolen",
                hint="give tls_cert and tls_key; or listen on 127.0.0.1; or set "
                "behind_proxy = true (--behind-proxy) if only a proxy with TLS can reach this port",
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the tuner."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def holds_password(url: str) -> bool:
    """Return whether the URL of a database contains a password."""
    return PASSWORD.search(url) is not None


def load_tuner_config(path: Path) -> TunerConfig:
    """Read tuner.toml.

    Raises:
        ConfigError: the file cannot be read or parsed, has an unknown key, or has a password in it although
            other users can read it.
    """
    file = TomlText(str(path), *toml.parsed(path))
    given = tables(file.table, ("price_per_kwh", "co2e_g_per_kwh"))
    if isinstance(named := given.get("series"), dict):
        given["series"] = tables(named, tuple(named))
    config = replace(file, table=given).into(TunerConfig)
    if holds_password(config.db) and path.stat().st_mode & 0o007:
        raise ConfigError(
            f"{path} has the database's password and is readable by other users",
            hint=f"chmod 640 {path}; or move the password to a passfile",
        )
    return config


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesTable(Table):
    """The source of a value over time: one of `constant`, `rows`, `csv` or `url`.

    A CSV file has a line for each value. `items` is the path of the list in a JSON answer of `url`, as in a
    service's file. `time` and `value` are columns, or paths in each item; a time is ISO 8601 or seconds
    since 1970. Each value is multiplied by `scale`. `every_s` is the interval of reading, in seconds.
    `token_file` has a bearer token.

    Raises:
        ConfigError: the table has none or several of the sources, or a value does not fit.
    """

    constant: float | None = None
    rows: tuple[HourRow, ...] = ()
    time_zone: str = "UTC"
    csv: Path | None = None
    url: str = ""
    items: str = ""
    time: str = "time"
    value: str = "value"
    scale: float = 1.0
    every_s: Annotated[float, Field(ge=60.0, le=86400.0)] = 3600.0
    token_file: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        given = [name for name in WAYS if getattr(self, name) not in (None, (), "")]
        if len(given) != 1:
            raise ConfigError(
                f"a series has {' and '.join(given) or 'none of ' + ', '.join(WAYS)}", hint=HOW
            )
        if not (math.isfinite(self.scale) and self.scale > 0.0):
            raise ConfigError(f"scale cannot be {self.scale}", hint="give a number above 0")
        if self.url:
            parts = urlsplit(self.url)
            local = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if parts.scheme != "https" and not (parts.scheme == "http" and local):
                raise ConfigError(f"url cannot be {self.url!r}", hint="write https://HOST/PATH")
        with reraised(ConfigError, InvalidInput):
            self.series("")

    def series(self, name: str) -> TimeSeries:
        """Return the series of the table alone; that of a CSV file or a URL is empty until it is read."""
        source = str(self.csv or self.url)
        shown = f"{name} by hour" if self.rows else f"{name} of {source}" if source else name
        return TimeSeries(
            name=shown, constant=self.constant, rows=self.rows, time_zone=self.time_zone
        )

    def from_csv(self, name: str) -> TimeSeries:
        """Return the series of its CSV file. Raises ConfigError: the file, a column or a value is wrong."""
        assert self.csv is not None
        try:
            with self.csv.open(newline="", encoding="utf-8-sig") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{self.csv} cannot be read: {error}") from None
        return self._of_items(name, rows, str(self.csv))

    def from_json(self, name: str, text: str) -> TimeSeries:
        """Return the series in an answer of its URL. Raises ConfigError: the answer has another form."""
        try:
            listed = _at(parsed(text), self.items)
        except (ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"the answer of {self.url} has no list at {self.items!r}: {error}",
                hint="correct `items`",
            ) from None
        if not isinstance(listed, list):
            raise ConfigError(f"{self.items!r} of {self.url} is not a list", hint="correct `items`")
        return self._of_items(name, listed, self.url)

    def _of_items(self, name: str, items: Sequence[Any], source: str) -> TimeSeries:
        """Return the series of items from a source, in order of time. Raises ConfigError."""
        if not 0 < len(items) <= MOST_POINTS:
            raise ConfigError(
                f"{source} has {len(items)} values", hint=f"give 1 to {MOST_POINTS} of them"
            )
        try:
            points = tuple(sorted(self._points(items, source)))
            return TimeSeries(name=f"{name} of {source}", points=points)
        except InvalidInput as error:
            raise ConfigError(f"{source}: {error.message}", hint=error.hint) from None

    def _points(self, items: Sequence[Any], source: str) -> Iterator[tuple[float, float]]:
        """Yield time, in seconds since 1970, and scaled value of each item. Raises ConfigError."""
        for number, item in enumerate(items, 1):
            try:
                at, value = _at(item, self.time), float(_at(item, self.value)) * self.scale
                yield _seconds(at), value
            except (LookupError, TypeError, ValueError, InvalidInput):
                raise ConfigError(
                    f"{source}: value {number} has no time at {self.time!r} or no number at "
                    f"{self.value!r}: {str(item)[:200]}",
                    hint="correct `time` and `value`",
                ) from None


def tables(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a table in which each plain number at these keys is replaced by a constant series."""

    def table(value: object) -> object:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return {"constant": value} if plain else value

    return {key: table(value) if key in names else value for key, value in given.items()}


def _at(node: Any, path: str) -> Any:  # noqa: ANN401  JSON
    """Return the value at a dotted path. Raises LookupError, TypeError, ValueError."""
    for step in path.split(".") if path else ():
        if not isinstance(node, list | Mapping):
            raise TypeError(step)
        node = node[int(step)] if isinstance(node, list) else node[step]
    return node


def _seconds(at: object) -> float:
    """Return a time, as a number or ISO 8601, in seconds since 1970. Raises InvalidInput."""
    if isinstance(at, int | float) and not isinstance(at, bool):
        return float(at)
    parsed = moment("time", str(at), datetime(1970, 1, 1, tzinfo=timezone.utc))
    if parsed is None:
        raise InvalidInput("time is empty")
    return parsed.timestamp()
