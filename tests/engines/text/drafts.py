"""Drafts: a small model with its own cache, or the text itself."""

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
    """Proposes the next tokens of the sequences in the first slots, in their order."""

    def propose(
        self, sequences: Sequence[DecodingSequence], count: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return tokens (rows, count), and the probabilities (rows, count, vocab) of sampled ones.

        The probabilities are None if the draft does not sample.
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
        """Return the tokens that followed the last occurrence."""
        return torch.tensor([lookup(s.tokens, count) for s in sequences]), None

    def move(self, source: int, slot: int, tokens: int) -> None:
        """Do nothing: this draft has no cache."""


class ModelDraft:
    """A small model. It reads the unread tokens of a sequence before it proposes."""

    def __init__(self, name: str, model: TextModel, slots: int) -> None:
        self._name = name
        self._model = model
        weight = model.lm_head.weight
        self._device = weight.device
        self._cache = KeyValueCache(model.config, slots, weight.device, weight.dtype)

    def propose(
        self, sequences: Sequence[DecodingSequence], count: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return tokens one after the other: the model's first choices, or sampled ones."""
        self._catch_up(sequences)
        # The last two: if every drafted token was accepted, the last one was never read.
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
        """Move the cache of a sequence."""
        self._cache.move(source, slot, tokens)

    def _catch_up(self, sequences: Sequence[DecodingSequence]) -> None:
        for slot, sequence in enumerate(sequences):
            seen, wanted = sequence.seen.get(self._name, 0), len(sequence.tokens) - 2
            if seen < wanted:
                missing = torch.tensor([sequence.tokens[seen:wanted]], device=self._device)
                start = torch.tensor([seen], device=self._device)
                self._model.extend(missing, start, self._cache, slot)


def _chosen(logits: Tensor, sequences: Sequence[DecodingSequence]) -> tuple[Tensor, Tensor]:
    """Return a token for each row, and the probabilities from which it was drawn."""
    weights = torch.zeros_like(logits)
    chosen = logits.argmax(-1)
    for row, sequence in enumerate(sequences):
        if sequence.temperature > 0.0:
            weights[row] = chances(logits[row], sequence.temperature)
            chosen[row] = draw(weights[row], sequence.random)
    return chosen, weights
