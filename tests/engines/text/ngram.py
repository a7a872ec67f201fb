"""A draft without a model: what followed the last time the same few tokens were written.

Prompt lookup decoding (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding), the longest match of up
to `LONGEST` tokens first. Ours: where nothing matches, the last token is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST, SHORTEST = 8, 2


def lookup(tokens: Sequence[int], count: int) -> list[int]:
    """Return `count` tokens that may follow, by the latest place where the text's end stood before."""
    text = "".join(map(chr, tokens))
    drafted = ""
    while len(drafted) < count:
        following = _following(text + drafted)
        drafted += following or text[-1]
    return [ord(token) for token in drafted[:count]]


def _following(text: str) -> str:
    """Return what followed the latest earlier place of the text's end, empty where there is none."""
    for length in range(min(LONGEST, len(text) - 1), SHORTEST - 1, -1):
        at = text.rfind(text[-length:], 0, len(text) - 1)
        if at >= 0:
            return text[at + length :]
    return ""
