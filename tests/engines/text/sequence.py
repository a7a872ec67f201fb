"""One decoding request: its tokens so far, its sampling, and its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tests.engines.text.tokenizer import EOS

Deliver = Callable[[list[int], bool], None]
"""Called with new tokens, and whether the request has ended with them."""


@dataclass(eq=False, slots=True)
class DecodingSequence:
    """A request in the engine. At temperature 0 the likeliest token is taken, else one is drawn.

    `seen` is the number of tokens in each draft's cache.
    """

    tokens: list[int]
    most: int
    deliver: Deliver
    temperature: float = 0.0
    seed: int = 0
    ignores_eos: bool = False
    slot: int = -1
    ended: bool = False
    cancelled: bool = False
    failed: bool = False
    written: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    random: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        self.random.manual_seed(self.seed)

    def take(self, tokens: list[int]) -> list[int]:
        """Append new tokens up to the request's end, and return the appended ones."""
        kept: list[int] = []
        for token in tokens:
            kept.append(token)
            self.written += 1
            if (token == EOS and not self.ignores_eos) or self.written >= self.most:
                self.ended = True
                break
        self.tokens += kept
        return kept
