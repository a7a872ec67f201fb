"""A draft without a model: the tokens that followed the last occurrence of the text's end.

Prompt lookup decoding (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding), the longest match of up
to `LONGEST` tokens first. Ours: without a match the last token is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 8, 2


def lookup(tokens: Sequence[int], count: int) -> list[int]:
    """Return `count` proposed tokens, from the latest earlier occurrence of the text's end."""
    text = "".join(map(chr, tokens))
    drafted = ""
    while len(drafted) < count:
        following = _following(text + drafted)
        drafted += following or text[-1]
    return [ord(token) for token in drafted[:count]]


def _following(text: str) -> str:
    """Return the tokens after the latest earlier occurrence of the text's end; empty if there is none."""
    for length in range(min(LONGEST, len(text) - 1), SHORTEST - 1, -1):
        at = text.rfind(text[-length:], 0, len(text) - 1)
        if at >= 0:
            return text[at + length :]
    return ""
