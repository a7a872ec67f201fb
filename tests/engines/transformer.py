"""Two transformers in plain torch.nn: one shaped like BERT-base, one like GPT-2.

BERT-base: Devlin et al. 2019, §3; GPT-2, the smallest: Radford et al. 2019, table 2. Both have 12 layers
of 12 heads; `width` is that of the hidden units, a multiple of 12. Random weights: timing needs no
trained ones. GPT-2 answers with its next token, so a request is a prompt's prefill, not a generation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS = 12
HEADS = 12


class Layer(nn.Module):
    """Self-attention and two linear maps, each with a shortcut; normalised before or after them."""

    def __init__(self, width: int, *, causal: bool, norm_first: bool, gelu: str) -> None:
        super().__init__()
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mix = nn.LayerNorm(width)
        self.norm_map = nn.LayerNorm(width)
        self.map = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(gelu), nn.Linear(4 * width, width)
        )
        self.causal = causal
        self.norm_first = norm_first

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's activation, batch × tokens × width."""
        if self.norm_first:
            x = x + self._attend(self.norm_mix(x))
            mapped: Tensor = x + self.map(self.norm_map(x))
            return mapped
        x = self.norm_mix(x + self._attend(x))
        normed: Tensor = self.norm_map(x + self.map(x))
        return normed

    def _attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.mix(x).view(batch, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        attended: Tensor = self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return attended


class Bert(nn.Module):
    """The encoder with its pooler; the label is the pooled vector's largest component."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30_522, width)
        self.places = nn.Embedding(512, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            *(Layer(width, causal=False, norm_first=False, gelu="none") for _ in range(LAYERS))
        )
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the pooled vectors, batch × width."""
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]] + self.segments.weight[0]
        return torch.tanh(self.pooler(self.layers(self.norm(x))[:, 0]))


class Gpt2(nn.Module):
    """The decoder; the label is the token that would come next."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(50_257, width)
        self.places = nn.Embedding(1024, width)
        self.layers = nn.Sequential(
            *(Layer(width, causal=True, norm_first=True, gelu="tanh") for _ in range(LAYERS))
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the next token, batch × vocabulary."""
        x = self.layers(self.words(tokens) + self.places.weight[: tokens.shape[1]])
        return functional.linear(self.norm(x[:, -1]), self.words.weight)


def bert(seed: int, width: int) -> nn.Module:
    """Return the encoder in eval mode; the same seed and width give the same weights."""
    torch.manual_seed(seed)
    return Bert(width).eval()


def gpt2(seed: int, width: int) -> nn.Module:
    """Return the decoder in eval mode; the same seed and width give the same weights."""
    torch.manual_seed(seed)
    return Gpt2(width).eval()
