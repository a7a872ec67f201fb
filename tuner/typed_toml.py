"""A strict reader of TOML files into dataclasses: errors name file, line and key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from tuner.bounds import tightened
from tuner.errors import ConfigError, InvalidInput
from tuner.toml import loads, parsed

T = TypeVar("T")
Way = Sequence[str | int]
"""The path from the whole file to a value: keys of tables and indices of lists."""
Filled = Annotated[str, StringConstraints(min_length=1)]
"""A string that counts as missing if it is empty."""
TOKEN = re.compile(
    r'(?s)"{3}(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|'
    r"#[^\n]*|[][{}\n]"
)
"""The tokens of TOML that may contain brackets or line ends, and brackets and line ends themselves."""
MUST = {"string": "a string", "int": "an integer", "float": "a number", "bool": "a boolean"}
MUST |= dict.fromkeys(("tuple", "list", "frozen_set"), "a list")
MUST |= dict.fromkeys(("dict", "dataclass"), "a table")
BOUNDS = {"greater_than": "above {gt:g}", "greater_than_equal": "at least {ge:g}"}
BOUNDS |= {"less_than_equal": "at most {le:g}", "finite_number": "finite"}
BOUNDS |= {f"{kind}_type": phrase for kind, phrase in MUST.items()}


def to_toml(value: object) -> str:
    """Return a text, a number or a list as TOML, which writes them as JSON does, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class Table:
    """The base of a dataclass into which a table is read: its fields are the known keys."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> Any:  # noqa: ANN401
        """Return the schema of the dataclass, with a bound for every key."""
        return tightened(handler(source), handler.resolve_ref_schema)


def load(path: Path, kind: type[T]) -> T:
    """Read a file into a dataclass.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or a value does not fit; the message
            names the file, the line, the key, and the nearest known key.
    """
    return TomlText(str(path), *parsed(path)).into(kind)


@dataclass(frozen=True, slots=True)
class TomlText:
    """A TOML text with its name, for errors, and its table."""

    name: str
    text: str
    table: Mapping[str, Any]

    @classmethod
    def parse(cls, name: str, text: str) -> TomlText:
        """Parse a text that is not from a local file. Raises ConfigError: it is not TOML."""
        try:
            return cls(name, text, loads(text))
        except ValueError as error:
            raise ConfigError(
                f"{name} is not valid TOML: {error}", hint="correct it there"
            ) from None

    def into(self, kind: type[T]) -> T:
        """Return the table as a dataclass. Raises ConfigError, as `load` does."""
        for way, value in _leaves(self.table):
            if not isinstance(value, str | int | float):
                hint = "write it as a string"
                raise self.refuses(way, f"{way[-1]} cannot be a date or a time", hint)
        adapter = TypeAdapter(kind)
        try:
            # From JSON, pydantic's strict mode converts lists to tuples and strings to paths, nothing else.
            return adapter.validate_json(json.dumps(self.table))
        except ValidationError as caught:
            # A misspelt key also makes the right key missing: report the unknown key first.
            first = min(
                caught.errors(), key=lambda error: error["type"] != "unexpected_keyword_argument"
            )
        raise _translated(self, first, adapter)

    def refuses(
        self, way: Way, message: str, hint: str = "", kind: type[ConfigError] = ConfigError
    ) -> ConfigError:
        """Return the error for the value at a path, with its place: `FILE, line 7: device 2: …`."""
        line, last = line_of(self.text, way), -2 if isinstance(way[-1], int) else -1
        steps = [f" {at + 1}" if isinstance(at, int) else f": {at}" for at in way[:last]]
        where = f"{self.name}{f', line {line}' if line else ''}{''.join(steps)}"
        return kind(where + ("" if message[0] == " " else ": ") + message, hint=hint)


def _translated(file: TomlText, error: Mapping[str, Any], adapter: TypeAdapter[Any]) -> ConfigError:
    """Return pydantic's error as one of ours, with the file, the line and the key."""
    kind, way, given = error["type"], error["loc"], error["input"]
    way, about = way[: _depth(file.table, way) + (kind == "missing")], error.get("ctx", {})
    key = next((step for step in reversed(way) if isinstance(step, str)), "")
    if kind == "unexpected_keyword_argument":
        keys = _keys(adapter.json_schema(), way[:-1])
        near = get_close_matches(key, keys, 1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(keys)}"
        return file.refuses(way, f"unknown key {key!r}", hint)
    if kind in ("missing", "string_too_short"):
        return file.refuses(way, f" has no {key}", f"add {key} = …")
    if isinstance(own := about.get("error"), InvalidInput):
        # The message of an error about a whole table begins with the key at fault.
        whole = (own.message.partition(" ")[0],) if isinstance(given, dict) else ()
        kinds = type(own) if isinstance(own, ConfigError) else ConfigError
        return file.refuses((*way, *whole), own.message, own.hint, kinds)
    if kind == "value_error":  # of the standard library; the value may hold a secret
        return file.refuses(way, f"{key} is not valid: {own}", "correct it")
    if kind in ("literal_error", "enum"):
        wrong = f"{key} cannot {'hold' if isinstance(way[-1], int) else 'be'} {given!r}"
        return file.refuses(way, wrong, f"choose {about['expected']}")
    subject = f"{key} {way[-1] + 1}" if isinstance(way[-1], int) else key
    must = BOUNDS[kind].format(**about) if kind in BOUNDS else error["msg"]
    return file.refuses(way, f"{subject} must be {must}, not {given!r}")


def _keys(schema: Mapping[str, Any], way: Way) -> list[str]:
    """Return the known keys of the table at a path."""
    node = schema
    for step in (*way, None):
        node = next((one for one in node.get("anyOf", ()) if "$ref" in one or "items" in one), node)
        while "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        if step is not None:
            node = node["items"] if isinstance(step, int) else node["properties"][step]
    return list(node["properties"])


def line_of(text: str, way: Way) -> int:
    """Return the line of the first statement that has a path, or as much of the path as the text has.

    It is 0 if the text has no part of the path. The line is found by bisection over the lines that begin a
    statement, since the text before each of them is valid TOML.
    """
    whole = _depth(loads(text), way)
    if whole == 0:
        return 0
    starts = [*_starts(text), len(text)]
    before, until = 0, len(starts) - 1
    while before + 1 < until:
        middle = (before + until) // 2
        if _depth(loads(text[: starts[middle]]), way) == whole:
            until = middle
        else:
            before = middle
    return text.count("\n", 0, starts[before]) + 1


def _starts(text: str) -> Iterator[int]:
    """Yield the offset of each line of valid TOML that is not inside a list, a table or a text."""
    yield 0
    depth = 0
    for token in TOKEN.finditer(text):
        first = token[0][0]
        depth += (first in "[{") - (first in "]}")
        if first == "\n" and depth == 0:
            yield token.end()


def _depth(table: Any, way: Way) -> int:  # noqa: ANN401 - whatever a file holds
    """Return the number of steps of a path that a table has, from the first one on."""
    for depth, step in enumerate(way):
        try:
            table = table[step]
        except (LookupError, TypeError):
            return depth
    return len(way)


def _leaves(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:  # noqa: ANN401
    """Yield each value that is neither a table nor a list, after its path."""
    if not isinstance(value, dict | list):
        yield way, value
        return
    for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, (*way, step))
