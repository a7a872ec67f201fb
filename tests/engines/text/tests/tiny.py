"""Tiny models with random weights: their text is meaningless, but always the same."""

from __future__ import annotations

import torch

from tests.engines.text.model import TextModel, TextModelConfig
from tests.engines.text.tokenizer import VOCAB


def tiny(layers: int, dim: int, seed: int, vocab: int = VOCAB, context: int = 128) -> TextModel:
    """Return a model with large weights, so that its choices are clear."""
    torch.manual_seed(seed)
    config = TextModelConfig(vocab, dim, layers, dim // 16, dim // 32, 2 * dim, context)
    model = TextModel(config).eval().requires_grad_(False)
    for weight in model.parameters():
        weight.mul_(3.0)
    return model
