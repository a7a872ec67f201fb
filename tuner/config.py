"""The tuner's configuration: tuner.toml, read strictly."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tuner.core import ALL_DAY, DEVICE_FIELDS, ConfigError, InvalidInput, parse_hours, reraised
from tuner.destinations import Email, Webhooks
from tuner.series import SeriesTable, tables
from tuner.tls import ServerTls
from tuner.toml import parsed
from tuner.typed_toml import Table, TomlText

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
    file = TomlText(str(path), *parsed(path))
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
