"""The tuner's configuration: tuner.toml, read strictly."""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from tuner.core import ConfigError

PASSWORD = re.compile(r"^[^:/]*://[^:/]*:[^@]+@|[?&](ssl)?password=", re.IGNORECASE)
"""A password as SQLAlchemy finds it in a URL, where it may hold `/` and `?`, or among libpq's options."""
HOST_NAME = re.compile(r"[\w.-]+|[0-9a-f:]+", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerConfig:
    """Everything the tuner can be told, with its defaults.

    `tuning_hours` is when trials may run, local time, as `HH-HH` (22-6 goes over midnight); holding is
    never limited. `keep_days` is how long observations and events are kept; trials are never pruned.
    `names` are the host names it answers to, besides this machine's own ones for loopback.
    """

    db: str = field(default="sqlite:///jouletune.sqlite", repr=False)
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    port: int = 8790
    token_file: Path = Path("token")
    port_file: Path | None = None
    lease_s: float = 30.0
    abandon_s: float = 900.0
    tuning_hours: str = "0-24"
    keep_days: int = 90

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port cannot be {self.port}", hint="choose 0 (any) to 65535")
        if self.lease_s <= 0.0 or self.abandon_s <= 0.0 or self.keep_days < 1:
            raise ConfigError("lease_s, abandon_s and keep_days must be positive")
        for name in self.names:
            if not HOST_NAME.fullmatch(name):
                raise ConfigError(
                    f"names cannot hold {name!r}",
                    hint='write host names alone, without scheme and port: ["tuner.example.org"]',
                )
        parse_hours(self.tuning_hours)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the tuner."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_hours(text: str) -> tuple[int, int]:
    """Read `HH-HH`.

    Raises:
        ConfigError: it is anything else.
    """
    first, dash, last = text.partition("-")
    if not (dash and first.strip().isdigit() and last.strip().isdigit()):
        raise ConfigError(f"tuning_hours cannot be {text!r}", hint='write it like "22-6"')
    start, end = int(first), int(last)
    if not (0 <= start <= 23 and 0 <= end <= 24) or start == end:
        raise ConfigError(f"tuning_hours cannot be {text!r}", hint='write it like "22-6"')
    return start, end


def within_hours(text: str, at: datetime) -> bool:
    """Return whether a time, in the machine's own zone, lies in the hours."""
    start, end = parse_hours(text)
    hour = at.astimezone().hour
    return start <= hour < end if start < end else hour >= start or hour < end


def holds_password(url: str) -> bool:
    """Return whether a database's URL has a password in it."""
    return PASSWORD.search(url) is not None


def load_tuner_config(path: Path) -> TunerConfig:
    """Read tuner.toml.

    Raises:
        ConfigError: the file cannot be read, does not parse, has a key that does not exist, or has a
            password in it and can be read by others.
    """
    config = TunerConfig(**read_table(path, TunerConfig))
    if holds_password(config.db) and path.stat().st_mode & 0o007:
        raise ConfigError(
            f"{path} holds the database's password and others may open it",
            hint=f"chmod 640 {path}; or leave the password out and keep it in a passfile",
        )
    return config


def read_table(path: Path, schema: type) -> dict[str, Any]:
    """Return the keys of a TOML file, checked by name and type against a dataclass's fields.

    Raises:
        ConfigError: names the file, the key, and the nearest key there is.
    """
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    known = {f.name: str(f.type) for f in fields(schema)}
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known)}"
            raise ConfigError(f"{path}: unknown key {key!r}", hint=hint)
        found[key] = _typed(path, key, value, known[key])
    return found


def _typed(path: Path, key: str, value: Any, kind: str) -> Any:  # noqa: ANN401 - TOML is untyped
    if kind == "tuple[str, ...]":
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise ConfigError(f"{path}: {key} must be a list of strings, not {value!r}")
        return tuple(value)
    fits = {
        "str": isinstance(value, str),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "Path": isinstance(value, str),
    }
    name = kind.split(" ", maxsplit=1)[0]
    if not fits.get(name, True):
        raise ConfigError(f"{path}: {key} must be a {name}, not {value!r}")
    return Path(value) if name == "Path" else float(value) if name == "float" else value
