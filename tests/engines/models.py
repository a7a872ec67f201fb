"""Four published models for the reference server's workers: their inputs and their builders."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agents.workloads.reference.catalogue import REFERENCE, Model
from tuner.core import InvalidInput

_HERE = "tests.engines"
_MODELS = (
    REFERENCE,
    Model("resnet50", f"{_HERE}.resnet50:resnet50", (3, 224, 224), "float32", 0, 64, 25_557_032),
    Model("mobilenet", f"{_HERE}.mobilenet:mobilenet", (3, 224, 224), "float32", 0, 32, 3_504_872),
    Model("bert", f"{_HERE}.transformer:bert", (128,), "int64", 30_522, 768, 109_482_240),
    Model("gpt2", f"{_HERE}.transformer:gpt2", (128,), "int64", 50_257, 768, 124_439_808),
)
MODELS: Mapping[str, Model] = MappingProxyType({model.name: model for model in _MODELS})


def model(name: str) -> Model:
    """Return a model by name. Raises InvalidInput: there is no such model."""
    if name not in MODELS:
        raise InvalidInput(f"there is no model {name!r}", hint=f"choose one of {', '.join(MODELS)}")
    return MODELS[name]


def models(names: str) -> list[Model]:
    """Return the models of a list like `bert,gpt2`. Raises InvalidInput: there is no such model."""
    return [model(name.strip()) for name in names.split(",")]
