"""Limits on the size of numbers, texts, lists and mappings that come from another machine.

`bounded` checks plain data before it is converted: a description of a million knobs costs no more than
counting them. It does not look at the names of fields, except those of sentences for people. Sentences are
shortened, because an agent must not lose a trial for a long error message. `tightened` gives every field of
a message or a table a bound, also a field that declares none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic_core import PydanticCustomError

MOST_TEXT = 1_000
MOST_SENTENCE = 2_000
MOST_KEYS = 256
MOST_ITEMS = 256
MOST_SCALARS = 10_000
"""The most plain values in a list, such as a knob's values or a study's devices."""
MOST_SETTINGS = 20_000
"""The most settings in a measured table."""
MOST_DEPTH = 16
SETTINGS = "only"
SENTENCES = frozenset({"ended", "hint", "message", "reason", "unable", "why"})
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that can control a terminal: C0, C1, Unicode's line ends, and changes of text direction; and
halves of a surrogate pair, which JSON may have and no text that is sent."""


DATABASE = re.compile(r"\b(sqlite|postgres(ql)?)(\+\w+)?://[^\s'`\",;]*")
CREDENTIALS = re.compile(r"(?<=://)[^\s/]+@")


def redacted(text: str) -> str:
    """Return a text that may leave this host: without the database's address, or a user in a URL."""
    return CREDENTIALS.sub("\u2026@", DATABASE.sub("\u2026", text))


def visible(text: str) -> str:
    """Return a text that is safe for a terminal: each control character becomes U+FFFD."""
    return CONTROL.sub("\ufffd", text)


def bounded(data: object, where: str = "", depth: int = 0) -> object:
    """Return data that is safe to convert, with long sentences shortened.

    Raises:
        ValueError: a text, list or mapping is too long, a text has control characters or is not
            Unicode, or the whole is nested too deeply.
    """
    if depth > MOST_DEPTH:
        raise ValueError(f"{where}: nested more than {MOST_DEPTH} deep")
    if isinstance(data, str):
        return _text(data, where)
    if isinstance(data, dict):
        if len(data) > MOST_KEYS:
            raise ValueError(f"{where or 'the message'}: more than {MOST_KEYS} keys")
        return {
            _text(key, f"a key of {where or 'the message'}") if isinstance(key, str) else key: (
                _sentence(value)
                if key in SENTENCES and isinstance(value, str)
                else bounded(value, str(key)[:MOST_TEXT], depth + 1)
            )
            for key, value in data.items()
        }
    if isinstance(data, list | tuple):
        most = _most_items(data, where)
        if len(data) > most:
            raise ValueError(f"{where}: more than {most} items")
        return [bounded(value, where, depth + 1) for value in data]
    return data


def _most_items(data: Sequence[object], where: str) -> int:
    """Return the limit on the length of a list: highest for settings, then for plain values."""
    if where == SETTINGS and all(map(_is_setting, data[: MOST_SETTINGS + 1])):
        return MOST_SETTINGS
    scalars = all(isinstance(value, str | int | float) for value in data[: MOST_SCALARS + 1])
    return MOST_SCALARS if scalars else MOST_ITEMS


def _is_setting(value: object) -> bool:
    """Return whether a value is a mapping of plain values."""
    return isinstance(value, Mapping) and all(
        isinstance(one, str | int | float) for one in value.values()
    )


def _text(text: str, where: str) -> str:
    """Return a text within bounds. Raises ValueError: too long, not Unicode, or with control characters."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"{where}: more than {MOST_TEXT} characters")
    _encodable(text)
    if CONTROL.search(text):
        raise ValueError(f"{where}: {ascii(text)[:80]} has control characters")
    return text


def _sentence(text: str) -> str:
    """Return a sentence cut to its limit, its lines kept, its control characters replaced."""
    cut = text if len(text) <= MOST_SENTENCE else f"{text[: MOST_SENTENCE - 1]}\u2026"
    _encodable(cut)
    return "\n".join(map(visible, cut.splitlines()))


def _encodable(text: str) -> None:
    """Raise ValueError if a text cannot be encoded, as with half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{ascii(text)[:80]} is not valid Unicode") from None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The limits for a field that declares none; `once` refuses lists that have a text twice.

    `strict` refuses `true` and "1e9" as numbers.
    """

    text: int = MOST_SENTENCE
    items: int = MOST_SETTINGS
    keys: int = MOST_KEYS
    number: float = 1e18
    once: bool = True
    strict: bool = True


RECEIVED = Sizes()
"""The limits for data from another machine or an operator."""
ANSWERED = Sizes(text=2**26, items=1_000_000, keys=100_000, number=1e300, once=False, strict=False)
"""The limits for the tuner's answers, which grow with the fleet and have sums of received numbers."""
MOST_INTEGER = 2**63 - 1
KEYS = "keys_schema"
UNSEEN = frozenset(
    {"cls", "config", "default", "expected", "function", "metadata", "serialization"}
)


def tightened(schema: Any, resolve: Callable[[Any], Any], sizes: Sizes = RECEIVED) -> Any:  # noqa: ANN401  a core schema of pydantic
    """Return a core schema in which each number, text, list and mapping has a finite bound.

    The bound is the `Range` in the metadata of a type of `tuner.core.quantities`, else the field's declared
    bound, else that in `sizes`. `resolve` returns the schema to which a reference points.
    """
    node = resolve(schema)
    marks = node.setdefault("metadata", {})
    if not marks.get("tightened"):
        marks["tightened"] = True
        for key, inner in list(node.items()):
            if key not in UNSEEN:
                # JSON has a number as the text of a key.
                _each(inner, resolve, replace(sizes, strict=False) if key == KEYS else sizes)
        _tighten(node, marks, sizes)
    return schema


def _each(inner: object, resolve: Callable[[Any], Any], sizes: Sizes) -> None:
    """Tighten every schema in a part of a schema."""
    if isinstance(inner, dict) and isinstance(inner.get("type"), str):
        tightened(inner, resolve, sizes)
    elif isinstance(inner, dict | list | tuple):
        for one in inner.values() if isinstance(inner, dict) else inner:
            _each(one, resolve, sizes)


def _tighten(node: dict[str, Any], marks: dict[str, Any], sizes: Sizes) -> None:
    """Give one node its bound; `marks` is its metadata."""
    kind = node["type"]
    if kind in ("float", "int"):
        _tighten_number(node, marks.get("range"), sizes)
    elif kind == "str":
        node.setdefault("max_length", sizes.text)
    elif kind == "dict":
        node.setdefault("max_length", sizes.keys)
    elif kind in ("list", "set", "frozenset") or "variadic_item_index" in node:
        node.setdefault("max_length", sizes.items)
        items = node.get("items_schema", {})
        texts = (items[0] if isinstance(items, list) else items).get("type") == "str"
        if sizes.once and texts and kind in ("list", "tuple") and not marks.get("repeated"):
            _checked(node, _once, {"uniqueItems": True})


def _tighten_number(node: dict[str, Any], given: Any, sizes: Sizes) -> None:  # noqa: ANN401
    """Give a number its range; `given` is a `tuner.core.quantities.Range` or None."""
    whole = node["type"] == "int"
    most = MOST_INTEGER if whole else sizes.number
    if given is None:
        if not {"ge", "gt"} & node.keys():
            node["ge"] = -most
        if not {"le", "lt"} & node.keys():
            node["le"] = most
    elif given.open_ended:
        limits = {"minimum": given.low, "maximum": given.high}
        _checked(node, partial(_within, given.low, given.high), limits, "function-wrap")
        return
    else:
        kind = int if whole else float
        node["gt" if given.above else "ge"], node["le"] = kind(given.low), kind(given.high)
    node["strict"] = node.get("strict", sizes.strict)
    if not whole:
        node["allow_inf_nan"] = False


def _checked(
    node: dict[str, Any],
    check: Callable[..., object],
    shown: Mapping[str, object],
    kind: str = "function-after",
) -> None:
    """Wrap a node in a check of its value; `shown` is the check as JSON Schema keywords."""
    inner = {**node}
    node.clear()
    node["type"], node["schema"] = kind, inner
    node["function"] = {"type": "no-info", "function": check}
    node["metadata"] = {"tightened": True, "pydantic_js_updates": dict(shown)}


def _within(low: float, high: float, given: object, read: Callable[[object], float]) -> float:
    """Return the end of an interval. Raises PydanticCustomError: it is finite and out of its range."""
    value = read(given)
    if not math.isinf(value) and isinstance(given, bool | str):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    if not (math.isinf(value) or low <= value <= high):
        raise PydanticCustomError(
            "out_of_range", "Input should be infinite or at most {high}", {"high": high}
        )
    return value


def _once(values: Sequence[str]) -> Sequence[str]:
    """Return texts. Raises PydanticCustomError: one of them is listed twice."""
    if len(set(values)) < len(values):
        twice = next(v for v in values if values.count(v) > 1)
        raise PydanticCustomError("listed_twice", "{twice} is listed twice", {"twice": repr(twice)})
    return values
