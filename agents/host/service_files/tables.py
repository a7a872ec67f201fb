"""Checks of the tables in operators' files on this host: required keys, commands, paths, names, times."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.host.http.local_http import local_url
from tuner import toml
from tuner.core import ConfigError, InvalidInput, reraised


def demand(where: str, table: Mapping[str, Any], *keys: str) -> None:
    """Raise ConfigError if a key is missing or empty."""
    for key in keys:
        if table.get(key) in (None, ""):
            raise ConfigError(f"{where} has no {key}", hint=f"add {key} = …")


def inner(
    where: str, table: Mapping[str, Any], key: str, kinds: Mapping[str, Any], *needed: str
) -> dict[str, Any]:
    """Return the checked inner table at a key; empty if the key is absent. Raises ConfigError."""
    return checked(where, table[key], kinds, *needed) if key in table else {}


def checked(where: str, table: object, kinds: Mapping[str, Any], *needed: str) -> dict[str, Any]:
    """Return a checked copy of a table.

    Raises:
        ConfigError: a needed key is absent, a value is of the wrong kind, or a label is not a string.
    """
    entry = toml.checked(where, table, kinds)
    demand(where, entry, *needed)
    for label, value in entry.get("labels", {}).items():
        if not isinstance(value, str):
            raise ConfigError(f"{where}: the label {label} must be a string, not {value!r}")
    return entry


def http_method(where: str, method: str) -> str:
    """Return an HTTP method. Raises ConfigError: it is not in capital letters."""
    if not re.fullmatch(r"[A-Z]+", method):
        raise ConfigError(f"{where}: method cannot be {method!r}", hint="write it like POST")
    return method


def url_path(where: str, path: str) -> str:
    """Return a path of the service, or a URL on this machine. Raises ConfigError: it is neither."""
    rest = path
    if path.startswith("http:"):
        address, slash, rest = path.removeprefix("http://").partition("/")
        rest = slash + rest
        with reraised(ConfigError, InvalidInput, where):
            local_url(f"http://{address}", "write http://127.0.0.1:PORT/PATH")
    if not re.fullmatch(r"/(?:[!-.0-~][!-~]*)?", rest):
        raise ConfigError(f"{where}: path cannot be {path!r}", hint="write it like /config")
    return path


def argv(where: str, words: list[Any]) -> tuple[str, ...]:
    """Return the words of a command, which runs without a shell. Raises ConfigError: they are not valid."""
    if not words or not all(isinstance(w, str) and w and "\0" not in w for w in words):
        raise ConfigError(
            f"{where}: a command is a list of words, not {words!r}",
            hint='write it like command = ["systemctl", "restart", "vllm"]',
        )
    return tuple(words)


def unit_name(where: str, name: str) -> str:
    """Return the name of a systemd unit that has processes.

    Raises:
        ConfigError: it is not such a name. Patterns are refused, because they could match other units.
    """
    if not re.fullmatch(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.\\@-]*\.(?:service|scope|slice)", name):
        raise ConfigError(
            f"{where}: {name!r} is not a systemd unit", hint="write it like nginx.service"
        )
    return name


def absolute(where: str, key: str, path: str) -> Path:
    """Return an absolute path. Raises ConfigError: the path is relative."""
    if not Path(path).is_absolute() or "\0" in path:
        raise ConfigError(f"{where}: {key} must be an absolute path, not {path!r}")
    return Path(path)


def environment(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that a program gets besides the agent's environment.

    Raises:
        ConfigError: a name or a value is not valid.
    """
    for name, text in table.items():
        fits = isinstance(text, str) and "\0" not in text
        if not fits or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f'{where}: env: {name} = {text!r} is not valid; write NAME = "text"')
    return dict(table)


def positive(where: str, entry: Mapping[str, Any], key: str, usual: float) -> float:
    """Return a duration in seconds, by default `usual`. Raises ConfigError: not finite, or not above 0."""
    value = float(entry.get(key, usual))
    if not (value > 0.0 and math.isfinite(value)):
        raise ConfigError(f"{where}: {key} must be above 0, not {value:g}")
    return value
