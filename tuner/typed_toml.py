"""TOML files as dataclasses, read strictly: errors name file, line and key."""

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
"""Keys, and places in lists, from the whole file to a value."""
Filled = Annotated[str, StringConstraints(min_length=1)]
"""A string that counts as missing where it is empty."""
TOKEN = re.compile(
    r'(?s)"{3}(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|'
    r"#[^\n]*|[][{}\n]"
)
"""What TOML may have brackets and line ends in, and these themselves."""
MUST = {"string": "a string", "int": "an integer", "float": "a number", "bool": "a boolean"}
MUST |= dict.fromkeys(("tuple", "list", "frozen_set"), "a list")
MUST |= dict.fromkeys(("dict", "dataclass"), "a table")
BOUNDS = {"greater_than": "above {gt:g}", "greater_than_equal": "at least {ge:g}"}
BOUNDS |= {"less_than_equal": "at most {le:g}", "finite_number": "finite"}
BOUNDS |= {f"{kind}_type": phrase for kind, phrase in MUST.items()}


def to_toml(value: object) -> str:
    """Return a text, a number or a list as TOML, which writes them as JSON does, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class Table:
    """A dataclass that a table is read into: its fields are the keys there are."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> Any:  # noqa: ANN401
        """Return its schema with a bound for every key."""
        return tightened(handler(source), handler.resolve_ref_schema)


def load(path: Path, kind: type[T]) -> T:
    """Read a file into a dataclass.

    Raises:
        ConfigError: the file cannot be read or parsed, or a key or a value does not fit; the message
            names the file, the line, the key, and the nearest key there is.
    """
    return TomlText(str(path), *parsed(path)).into(kind)


@dataclass(frozen=True, slots=True)
class TomlText:
    """A text of TOML, by its name, and the table that it is."""

    name: str
    text: str
    table: Mapping[str, Any]

    @classmethod
    def parse(cls, name: str, text: str) -> TomlText:
        """Read a text that is not in a file here. Raises ConfigError: it is not TOML."""
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
            # From JSON a list becomes a tuple and a string a path, and nothing else becomes another kind.
            return adapter.validate_json(json.dumps(self.table))
        except ValidationError as caught:
            # A misspelt key may be another that is missing.
            first = min(
                caught.errors(), key=lambda error: error["type"] != "unexpected_keyword_argument"
            )
        raise _translated(self, first, adapter)

    def refuses(
        self, way: Way, message: str, hint: str = "", kind: type[ConfigError] = ConfigError
    ) -> ConfigError:
        """Return what is reported of the end of a way: `FILE, line 7: device 2: …`."""
        line, last = line_of(self.text, way), -2 if isinstance(way[-1], int) else -1
        steps = [f" {at + 1}" if isinstance(at, int) else f": {at}" for at in way[:last]]
        where = f"{self.name}{f', line {line}' if line else ''}{''.join(steps)}"
        return kind(where + ("" if message[0] == " " else ": ") + message, hint=hint)


def _translated(file: TomlText, error: Mapping[str, Any], adapter: TypeAdapter[Any]) -> ConfigError:
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
        # What is wrong with a table as a whole begins with the key that it is about.
        whole = (own.message.partition(" ")[0],) if isinstance(given, dict) else ()
        kinds = type(own) if isinstance(own, ConfigError) else ConfigError
        return file.refuses((*way, *whole), own.message, own.hint, kinds)
    if kind in ("literal_error", "enum"):
        wrong = f"{key} cannot {'hold' if isinstance(way[-1], int) else 'be'} {given!r}"
        return file.refuses(way, wrong, f"choose {about['expected']}")
    subject = f"{key} {way[-1] + 1}" if isinstance(way[-1], int) else key
    must = BOUNDS[kind].format(**about) if kind in BOUNDS else error["msg"]
    return file.refuses(way, f"{subject} must be {must}, not {given!r}")


def _keys(schema: Mapping[str, Any], way: Way) -> list[str]:
    """Return the keys of the table that a way leads to."""
    node = schema
    for step in (*way, None):
        node = next((one for one in node.get("anyOf", ()) if "$ref" in one or "items" in one), node)
        while "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        if step is not None:
            node = node["items"] if isinstance(step, int) else node["properties"][step]
    return list(node["properties"])


def line_of(text: str, way: Way) -> int:
    """Return the line of the statement that first says what a way leads to, or most of it; 0: none does.

    By halves of the lines that begin a statement: the text before one is TOML by itself.
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
    """Yield where lines begin that are in no list, table or text of several lines. Of valid TOML only."""
    yield 0
    depth = 0
    for token in TOKEN.finditer(text):
        first = token[0][0]
        depth += (first in "[{") - (first in "]}")
        if first == "\n" and depth == 0:
            yield token.end()


def _depth(table: Any, way: Way) -> int:  # noqa: ANN401 - whatever a file holds
    """Return how many steps of a way there are in a table."""
    for depth, step in enumerate(way):
        try:
            table = table[step]
        except (LookupError, TypeError):
            return depth
    return len(way)


def _leaves(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:  # noqa: ANN401
    """Yield whatever is neither table nor list, with the way to it."""
    if not isinstance(value, dict | list):
        yield way, value
        return
    for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, (*way, step))
