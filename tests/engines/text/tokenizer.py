"""Text as bytes: token k is byte k, then the tokens that begin and end a text. GGUF supports this."""

from __future__ import annotations

from collections.abc import Iterable

BOS, EOS = 256, 257
VOCAB = 258


def encode(text: str) -> list[int]:
    """Return the tokens of a text, the beginning's first."""
    return [BOS, *text.encode()]


def decode(tokens: Iterable[int]) -> str:
    """Return the text of tokens; invalid UTF-8 is replaced, and the two marks are left out."""
    return bytes(token for token in tokens if token < BOS).decode(errors="replace")
