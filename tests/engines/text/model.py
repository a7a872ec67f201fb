"""A Llama in plain PyTorch, with keys and values in slots, so that requests can join and leave.

Architecture: Touvron et al. 2023 (arXiv 2302.13971), §2.2: RMSNorm before each part, rotary embeddings
(in Hugging Face's half-rotation layout), SwiGLU; grouped queries as in Llama 2 (arXiv 2307.09288, §2.2).
Weights have Hugging Face's names, so that tools for Llama models can convert these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class TextModelConfig:
    """The sizes of a model. `hidden` is the width of its feed-forward layers, `context` in tokens."""

    vocab: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    context: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5


class KeyValueCache:
    """Keys and values of every layer for `slots` sequences of up to `context` tokens.

    Decoding sequences are in the first slots, so that a step reads a view and copies nothing.
    """

    def __init__(
        self, config: TextModelConfig, slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        shape = (config.layers, slots, config.kv_heads, config.context, config.dim // config.heads)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)

    def move(self, source: int, slot: int, tokens: int) -> None:
        """Copy the first tokens of one slot to another."""
        for cached in (self.keys, self.values):
            cached[:, slot, :, :tokens] = cached[:, source, :, :tokens]


class _Attention(nn.Module):
    def __init__(self, config: TextModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        width = config.dim // config.heads
        self.q_proj = nn.Linear(config.dim, config.heads * width, bias=False)
        self.k_proj = nn.Linear(config.dim, config.kv_heads * width, bias=False)
        self.v_proj = nn.Linear(config.dim, config.kv_heads * width, bias=False)
        self.o_proj = nn.Linear(config.heads * width, config.dim, bias=False)

    def forward(self, x: Tensor, turn: Tensor, seen: _CachedPass | None, layer: int) -> Tensor:
        rows, tokens, _ = x.shape
        query = _rotated(self._split(self.q_proj(x), self.heads), turn)
        key = _rotated(self._split(self.k_proj(x), self.kv_heads), turn)
        value = self._split(self.v_proj(x), self.kv_heads)
        grouped = self.heads != self.kv_heads
        if seen is None:
            mixed = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=grouped
            )
        else:
            key, value = seen.extended(layer, key, value)
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=seen.mask, enable_gqa=grouped
            )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, tokens, -1))
        return out

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class _FeedForward(nn.Module):
    def __init__(self, config: TextModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Block(nn.Module):
    def __init__(self, config: TextModelConfig) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.mlp = _FeedForward(config)
        self.input_layernorm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.dim, eps=config.norm_eps)

    def forward(self, x: Tensor, turn: Tensor, seen: _CachedPass | None, layer: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, seen, layer)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class _Decoder(nn.Module):
    def __init__(self, config: TextModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps)


@dataclass(slots=True)
class _CachedPass:
    """The cache as one pass reads and writes it: the first `rows` slots, up to `longest` tokens."""

    cache: KeyValueCache
    first: int
    rows: Tensor
    places: Tensor
    longest: int
    mask: Tensor

    def extended(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values at their places, and return all up to the longest sequence."""
        end = self.first + self.rows.shape[0]
        keys = self.cache.keys[layer, self.first : end]
        values = self.cache.values[layer, self.first : end]
        keys[self.rows, :, self.places] = key.transpose(1, 2)
        values[self.rows, :, self.places] = value.transpose(1, 2)
        return keys[:, :, : self.longest], values[:, :, : self.longest]


class TextModel(nn.Module):
    """The model. Without a cache it reads whole sequences (training); with one it continues from it."""

    def __init__(self, config: TextModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = _Decoder(config)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        width = config.dim // config.heads
        rate = config.rope_theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.outer(torch.arange(config.context, dtype=torch.float64), rate)
        turn = torch.stack((angle.cos(), angle.sin())).float()
        self.register_buffer("_turn", turn, persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * config.layers) if deep else 1.0))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (rows, tokens, vocab) of whole sequences (rows, tokens)."""
        assert isinstance(self._turn, Tensor)
        turn = self._turn[:, None, None, : tokens.shape[1]]
        return self._through(tokens, turn, None)

    def extend(
        self, tokens: Tensor, starts: Tensor, cache: KeyValueCache, first_slot: int = 0
    ) -> Tensor:
        """Return the logits (rows, n, vocab) of the next n tokens of cached sequences.

        Row k is in slot `first_slot` + k, its tokens (rows, n) at the positions from `starts[k]` on;
        later positions in the cache are overwritten, and never read.
        """
        assert isinstance(self._turn, Tensor)
        places = starts[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        longest = int(starts.max()) + tokens.shape[1]
        mask = torch.arange(longest, device=tokens.device) <= places[:, None, :, None]
        rows = torch.arange(tokens.shape[0], device=tokens.device)[:, None]
        seen = _CachedPass(cache, first_slot, rows, places, longest, mask)
        return self._through(tokens, self._turn[:, places][:, :, None], seen)

    def _through(self, tokens: Tensor, turn: Tensor, seen: _CachedPass | None) -> Tensor:
        x = self.model.embed_tokens(tokens)
        for layer, block in enumerate(self.model.layers):
            x = block(x, turn, seen, layer)
        logits: Tensor = self.lm_head(self.model.norm(x))
        return logits


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate queries or keys (rows, heads, tokens, width) by their positions (half-rotation)."""
    cos, sin = turn[0].to(x.dtype), turn[1].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
