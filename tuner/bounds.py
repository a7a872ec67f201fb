"""How long texts, lists and mappings may be that come from another machine, whatever their field is.

Pure checks of plain data, before anything is made of it: a description of a million knobs costs no more
than counting them. Nothing is looked up by a field's name but the sentences, which people read: they are
shortened, as an agent must not lose a trial for a long error message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MOST_TEXT = 1_000
MOST_SENTENCE = 2_000
MOST_KEYS = 256
MOST_ITEMS = 256
MOST_SCALARS = 10_000
"""Values of a knob, devices of a study."""
MOST_SETTINGS = 20_000
"""Combinations that a measured table has."""
MOST_DEPTH = 16
SETTINGS = "only"
SENTENCES = frozenset({"ended", "hint", "message", "reason", "unable", "why"})
CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]")
"""What a terminal may obey: C0, C1, line ends of Unicode, and what turns the direction of text."""


def visible(text: str) -> str:
    """Return a text without control characters, as it can be written to a terminal."""
    return CONTROL.sub("\ufffd", text)


def bounded(data: object, where: str = "", depth: int = 0) -> object:
    """Return data as it may be used, sentences shortened.

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
    if where == SETTINGS and all(map(_is_setting, data[: MOST_SETTINGS + 1])):
        return MOST_SETTINGS
    scalars = all(isinstance(value, str | int | float) for value in data[: MOST_SCALARS + 1])
    return MOST_SCALARS if scalars else MOST_ITEMS


def _is_setting(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(one, str | int | float) for one in value.values()
    )


def _text(text: str, where: str) -> str:
    if len(text) > MOST_TEXT:
        raise ValueError(f"{where}: more than {MOST_TEXT} characters")
    _encodable(text)
    if CONTROL.search(text):
        raise ValueError(f"{where}: {ascii(text)[:80]} has control characters")
    return text


def _sentence(text: str) -> str:
    """Return a sentence within bounds, its lines kept."""
    cut = text if len(text) <= MOST_SENTENCE else f"{text[: MOST_SENTENCE - 1]}\u2026"
    _encodable(cut)
    return "\n".join(map(visible, cut.splitlines()))


def _encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{ascii(text)[:80]} is not valid Unicode") from None
