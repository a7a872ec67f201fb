"""Writes a Llama model as a GGUF file, which llama.cpp reads; needs the package `gguf` (extra `llama`).

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; names and layout of the tensors
as in llama.cpp's `convert_hf_to_gguf.py` (`LlamaModel`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray

from tests.engines.text.model import TextModelConfig

BYTES = 256
NEVER_MERGED = "! !"
"""llama.cpp refuses a byte-pair vocabulary without any merge, and `gguf` writes no empty list. This
merge has no token, so that llama.cpp falls back to the two bytes."""


@dataclass(frozen=True, slots=True)
class ByteVocabulary:
    """A token for each byte (its id is the byte), then those of `control`, of which llama.cpp needs two.

    `merges` are pairs of byte strings, each making the next token after the bytes, before `control`.
    """

    merges: Sequence[tuple[bytes, bytes]] = ()
    control: tuple[str, ...] = ("<bos>", "<eos>")

    @property
    def bos(self) -> int:
        """The id of the token that begins a text."""
        return BYTES + len(self.merges)

    @property
    def eos(self) -> int:
        """The id of the token that ends a text."""
        return self.bos + 1

    def __len__(self) -> int:
        return self.bos + len(self.control)


def write_gguf(
    path: Path,
    name: str,
    shape: TextModelConfig,
    weights: Mapping[str, torch.Tensor],
    vocabulary: ByteVocabulary | None = None,
) -> None:
    """Write a model whose weights have Hugging Face's names, all as 32-bit floats.

    Rotary embeddings are expected in Hugging Face's half-rotation layout; llama.cpp's is interleaved,
    so the rows of q and k are permuted. The file is written whole or not at all.

    Raises:
        ValueError: the vocabulary does not have the model's size, or a weight is missing.
    """
    vocabulary = vocabulary or ByteVocabulary()
    if len(vocabulary) != shape.vocab:
        raise ValueError(f"the vocabulary has {len(vocabulary)} tokens, the model {shape.vocab}")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(handle)
    try:
        writer = gguf.GGUFWriter(temporary, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA])
        _describe(writer, name, shape)
        _add_vocabulary(writer, vocabulary)
        for tensor_name, values in _tensors(shape, weights):
            writer.add_tensor(tensor_name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _describe(writer: gguf.GGUFWriter, name: str, shape: TextModelConfig) -> None:
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(shape.vocab)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.dim // shape.heads)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_eps)


def _add_vocabulary(writer: gguf.GGUFWriter, vocabulary: ByteVocabulary) -> None:
    """Add it as GPT-2's byte-level vocabulary, the only kind in which llama.cpp preserves every byte."""
    letters = byte_letters()

    def spelled(text: bytes) -> str:
        return "".join(letters[byte] for byte in text)

    merged = [spelled(one + other) for one, other in vocabulary.merges]
    texts = [*letters, *merged, *vocabulary.control]
    plain = [gguf.TokenType.NORMAL] * (BYTES + len(merged))
    pairs = [f"{spelled(one)} {spelled(other)}" for one, other in vocabulary.merges]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types([*plain, *[gguf.TokenType.CONTROL] * len(vocabulary.control)])
    writer.add_token_merges(pairs or [NEVER_MERGED])
    writer.add_bos_token_id(vocabulary.bos)
    writer.add_eos_token_id(vocabulary.eos)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def byte_letters() -> list[str]:
    """Return the letter that GPT-2's vocabulary writes for each byte (its `bytes_to_unicode`)."""
    kept = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, BYTES)}
    others = iter(range(BYTES, 2 * BYTES))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(BYTES)]


_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_ROTATED = {"self_attn.q_proj", "self_attn.k_proj"}


def _tensors(
    shape: TextModelConfig, weights: Mapping[str, torch.Tensor]
) -> list[tuple[str, NDArray[np.float32]]]:
    missing = [name for name in _names(shape) if name not in weights]
    if missing:
        raise ValueError(f"the model has no weight {missing[0]!r}")
    tensors = []
    for name, written in _names(shape).items():
        values = weights[name].detach().to("cpu", torch.float32)
        part = name.removeprefix("model.layers.").partition(".")[2].removesuffix(".weight")
        if part in _ROTATED:
            heads = shape.heads if part == "self_attn.q_proj" else shape.kv_heads
            values = _interleaved(values, heads)
        tensors.append((written, values.contiguous().numpy()))
    return tensors


def _names(shape: TextModelConfig) -> dict[str, str]:
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for layer in range(shape.layers):
        for part, written in _LAYER.items():
            names[f"model.layers.{layer}.{part}.weight"] = f"blk.{layer}.{written}.weight"
    return names


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Return the rows of each head with its two halves interleaved."""
    rows, width = weight.shape
    return weight.view(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width)
