"""Small Llamas with seeded random weights, and their output by PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tests.engines.text.model import TextModelConfig

TARGET = TextModelConfig(
    vocab=258, dim=256, layers=4, heads=8, kv_heads=4, hidden=512, context=1024
)
DRAFT = TextModelConfig(vocab=258, dim=256, layers=1, heads=8, kv_heads=4, hidden=512, context=1024)
"""The target's first layer alone, which sometimes predicts the right token."""
BOS = 256
LATER = 0.15
"""The weight of the layers after the first: small, so that the draft is often right."""


def weights(shape: TextModelConfig, seed: int = 0) -> dict[str, Tensor]:
    """Return weights with Hugging Face's names; those of fewer layers are a subset of those of more."""
    made = torch.Generator().manual_seed(seed)
    width = shape.dim // shape.heads

    def matrix(rows: int, columns: int, scale: float) -> Tensor:
        return torch.randn(rows, columns, generator=made) * scale / math.sqrt(columns)

    tensors = {
        "model.embed_tokens.weight": matrix(shape.vocab, shape.dim, math.sqrt(shape.dim)),
        "lm_head.weight": matrix(shape.vocab, shape.dim, 4.0),
        "model.norm.weight": 1.0 + 0.1 * torch.randn(shape.dim, generator=made),
    }
    for layer in range(shape.layers):
        scale = LATER if layer else 1.0
        sizes = {
            "self_attn.q_proj": (shape.dim, shape.dim, 2.0),
            "self_attn.k_proj": (shape.kv_heads * width, shape.dim, 2.0),
            "self_attn.v_proj": (shape.kv_heads * width, shape.dim, 1.0),
            "self_attn.o_proj": (shape.dim, shape.dim, scale),
            "mlp.gate_proj": (shape.hidden, shape.dim, 1.0),
            "mlp.up_proj": (shape.hidden, shape.dim, 1.0),
            "mlp.down_proj": (shape.dim, shape.hidden, scale),
        }
        for part, size in sizes.items():
            tensors[f"model.layers.{layer}.{part}.weight"] = matrix(*size)
        for part in ("input_layernorm", "post_attention_layernorm"):
            norm = 1.0 + 0.1 * torch.randn(shape.dim, generator=made)
            tensors[f"model.layers.{layer}.{part}.weight"] = norm
    return tensors


def logits(shape: TextModelConfig, weight: dict[str, Tensor], tokens: Sequence[int]) -> Tensor:
    """Return the logits after each token."""
    x = weight["model.embed_tokens.weight"][torch.tensor(tokens)]
    turn = _turn(shape, len(tokens))
    for layer in range(shape.layers):
        of = {
            name.removeprefix(f"model.layers.{layer}."): value
            for name, value in weight.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        normed = _norm(shape, x, of["input_layernorm.weight"])
        query = _rotated(_heads(normed @ of["self_attn.q_proj.weight"].T, shape.heads), turn)
        key = _rotated(_heads(normed @ of["self_attn.k_proj.weight"].T, shape.kv_heads), turn)
        value = _heads(normed @ of["self_attn.v_proj.weight"].T, shape.kv_heads)
        mixed = functional.scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=True, enable_gqa=True
        )[0]
        x = x + mixed.transpose(0, 1).flatten(1) @ of["self_attn.o_proj.weight"].T
        normed = _norm(shape, x, of["post_attention_layernorm.weight"])
        gate = functional.silu(normed @ of["mlp.gate_proj.weight"].T)
        x = x + (gate * (normed @ of["mlp.up_proj.weight"].T)) @ of["mlp.down_proj.weight"].T
    return _norm(shape, x, weight["model.norm.weight"]) @ weight["lm_head.weight"].T


def _norm(shape: TextModelConfig, x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + shape.norm_eps) * weight


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.view(len(x), heads, -1).transpose(0, 1)


def _turn(shape: TextModelConfig, tokens: int) -> tuple[Tensor, Tensor]:
    width = shape.dim // shape.heads
    rates = shape.rope_theta ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(tokens).float(), rates).repeat(1, 2)
    return angles.cos(), angles.sin()


def _rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat((-second, first), dim=-1) * turn[1]
