"""What proposes tokens: a small model with a cache of its own, or the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from tests.engines.text.acceptance import chances, draw
from tests.engines.text.model import KeyValueCache, TextModel
from tests.engines.text.ngram import lookup
from tests.engines.text.sequence import DecodingSequence


class Draft(Protocol):
    """Proposes the next tokens of sequences that lie in the first slots, in their order."""

    def propose(
        self, sequences: Sequence[DecodingSequence], count: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return tokens (rows, count), and the chances (rows, count, vocab) sampled ones were drawn with.

        None for the chances where nothing is left to chance.
        """
        ...

    def move(self, source: int, slot: int, tokens: int) -> None:
        """Follow a sequence to another slot."""
        ...


class NgramDraft:
    """Prompt lookup."""

    def propose(
        self, sequences: Sequence[DecodingSequence], count: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return what followed before."""
        return torch.tensor([lookup(s.tokens, count) for s in sequences]), None

    def move(self, source: int, slot: int, tokens: int) -> None:
        """Keep nothing, so move nothing."""


class ModelDraft:
    """A small model. What it has not read of a sequence yet, it reads before it proposes."""

    def __init__(self, name: str, model: TextModel, slots: int) -> None:
        self._name = name
        self._model = model
        weight = model.lm_head.weight
        self._device = weight.device
        self._cache = KeyValueCache(model.config, slots, weight.device, weight.dtype)

    def propose(
        self, sequences: Sequence[DecodingSequence], count: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return tokens one after the other, by the model's first choice or drawn."""
        self._catch_up(sequences)
        # The last two: of a sequence whose every draft stood, the last drafted one was never read.
        pair = torch.tensor([s.tokens[-2:] for s in sequences], device=self._device)
        places = torch.tensor([len(s.tokens) for s in sequences], device=self._device)
        logits = self._model.extend(pair, places - 2, self._cache)[:, -1]
        sampling = any(s.temperature > 0.0 for s in sequences)
        tokens, drawn_with = [], []
        for k in range(count):
            if sampling:
                chosen, weights = _chosen(logits, sequences)
                drawn_with.append(weights)
            else:
                chosen = logits.argmax(-1)
            tokens.append(chosen)
            if k + 1 < count:
                logits = self._model.extend(chosen[:, None], places + k, self._cache)[:, -1]
        for sequence in sequences:
            sequence.seen[self._name] = len(sequence.tokens)
        return torch.stack(tokens, 1), torch.stack(drawn_with, 1) if drawn_with else None

    def move(self, source: int, slot: int, tokens: int) -> None:
        """Move what is cached of a sequence."""
        self._cache.move(source, slot, tokens)

    def _catch_up(self, sequences: Sequence[DecodingSequence]) -> None:
        for slot, sequence in enumerate(sequences):
            seen, wanted = sequence.seen.get(self._name, 0), len(sequence.tokens) - 2
            if seen < wanted:
                missing = torch.tensor([sequence.tokens[seen:wanted]], device=self._device)
                start = torch.tensor([seen], device=self._device)
                self._model.extend(missing, start, self._cache, slot)


def _chosen(logits: Tensor, sequences: Sequence[DecodingSequence]) -> tuple[Tensor, Tensor]:
    """Return a token for each row, and the chances it was drawn with."""
    weights = torch.zeros_like(logits)
    chosen = logits.argmax(-1)
    for row, sequence in enumerate(sequences):
        if sequence.temperature > 0.0:
            weights[row] = chances(logits[row], sequence.temperature)
            chosen[row] = draw(weights[row], sequence.random)
    return chosen, weights
