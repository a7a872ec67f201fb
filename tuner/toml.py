"""A strict reader of TOML: every key must be known, and every value must have its type."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tuner.errors import ConfigError, InvalidInput

if sys.version_info >= (3, 11):
    import tomllib as tomllib
else:
    import tomli as tomllib

NUMBER = (int, float)
KINDS = {str: "a string", int: "an integer", NUMBER: "a number", list: "a list", bool: "a boolean"}
"""The name of each kind in an error; any other kind is a table."""


MOST_DEPTH = 32
"""The deepest nesting of tables and lists; our own files nest half a dozen deep."""


def loads(text: str) -> dict[str, Any]:
    """Return the table of a TOML text. Raises ValueError: it is not TOML, or is nested too deeply."""
    with suppress(RecursionError):
        table: dict[str, Any] = tomllib.loads(text)
        if depth_of(table, MOST_DEPTH) <= MOST_DEPTH:
            return table
    raise ValueError(f"nested more than {MOST_DEPTH} deep")


def depth_of(value: object, most: int) -> int:
    """Return the depth to which lists and mappings are nested, counted up to `most` + 1."""
    if most < 0 or not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max((depth_of(one, most - 1) for one in inner), default=-1)


def read(path: Path, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's table; `kinds` are the keys that it may have, with the type or types of each.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or a value does not fit; the message
            names the file, the key, and the nearest known key.
    """
    return checked(str(path), parsed(path)[1], kinds)


def parsed(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text and its table. Raises ConfigError: it cannot be read or parsed."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return text, loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="check its path") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="correct it") from None


def checked(
    where: str, table: object, kinds: Mapping[str, Any], error: type[InvalidInput] = ConfigError
) -> dict[str, Any]:
    """Return a table. Raises `error`: a key is unknown, or a value is not of the key's kind."""
    if not isinstance(table, dict):
        raise error(f"{where} must be a table, not {table!r}")
    for key, value in table.items():
        if key not in kinds:
            near = get_close_matches(key, kinds, 1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(kinds)}"
            raise error(f"{where}: unknown key {key!r}", hint=hint)
        if isinstance(value, bool) is not (kinds[key] is bool) or not isinstance(value, kinds[key]):
            raise error(f"{where}: {key} must be {KINDS.get(kinds[key], 'a table')}, not {value!r}")
    return table
