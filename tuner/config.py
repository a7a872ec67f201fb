"""The tuner's configuration: tuner.toml, read strictly."""

from __future__ import annotations

import difflib
import ipaddress
import tomllib
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from tuner.core import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerConfig:
    """Everything the tuner can be told, with its defaults.

    `tuning_hours` is when trials may run, local time, as `HH-HH` (22-6 goes over midnight); holding is
    never limited. `keep_days` is how long observations and events are kept; trials are never pruned.
    """

    db: str = "sqlite:///jouletune.sqlite"
    host: str = "127.0.0.1"
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


def load_tuner_config(path: Path) -> TunerConfig:
    """Read tuner.toml.

    Raises:
        ConfigError: the file cannot be read, does not parse, or has a key that does not exist.
    """
    return TunerConfig(**read_table(path, TunerConfig))


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
