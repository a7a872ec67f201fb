"""The models that the reference server can serve: what goes in, and where each is built.

Known without torch, so that the front of the server, which only moves their inputs, stays light.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tuner.core import InvalidInput

DEFAULT = "reference"


@dataclass(frozen=True, slots=True)
class Model:
    """One item's input, and the function `(seed, width) -> nn.Module` that builds the model.

    `dtype` is numpy's name; `below` bounds whole-number inputs (tokens), 0 for images. `width` is the
    published one, in channels of the first stage or in hidden units, with which there are
    `parameters` of 4 bytes.
    """

    name: str
    built_by: str
    shape: tuple[int, ...]
    dtype: str
    below: int
    width: int
    parameters: int

    def weight_bytes(self, width: int) -> int:
        """Return about how many bytes the weights take: they grow with the square of the width."""
        return int(4 * self.parameters * (width / self.width) ** 2)


_HERE = "agents.workloads.reference"
_MODELS = (
    Model(DEFAULT, f"{_HERE}.resnet18:classifier", (3, 96, 96), "float32", 0, 32, 2_824_580),
    Model("resnet50", f"{_HERE}.resnet50:resnet50", (3, 224, 224), "float32", 0, 64, 25_557_032),
    Model("mobilenet", f"{_HERE}.mobilenet:mobilenet", (3, 224, 224), "float32", 0, 32, 3_504_872),
    Model("bert", f"{_HERE}.transformer:bert", (128,), "int64", 30_522, 768, 109_482_240),
    Model("gpt2", f"{_HERE}.transformer:gpt2", (128,), "int64", 50_257, 768, 124_439_808),
)
MODELS: Mapping[str, Model] = MappingProxyType({model.name: model for model in _MODELS})


def model(name: str) -> Model:
    """Return a model by name. Raises InvalidInput where there is none."""
    if name not in MODELS:
        raise InvalidInput(
            f"there is no reference model {name!r}", hint=f"choose one of {', '.join(MODELS)}"
        )
    return MODELS[name]
