"""Opens the engine's models, and trains them first if necessary."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch

from tests.engines.text.decoding import Decoder
from tests.engines.text.recipe import TARGET, TrainingRecipe, load
from tests.engines.text.training import Progress, trained

SLOTS = 32
"""The number of requests that decode together."""


def open_decoder(recipe: TrainingRecipe, cache: Path, progress: Progress) -> Decoder:
    """Return the target with its drafts, on the GPU if there is one.

    Raises:
        InvalidInput: a trained model cannot be read.
    """
    return open_models(trained(recipe, cache, progress), recipe.drafts)


def open_models(folder: Path, drafts: Iterable[str] | None = None) -> Decoder:
    """Return the models of a folder; by default every model beside the target is a draft.

    Raises:
        InvalidInput: a model cannot be read, or a draft does not fit the target.
    """
    drafts_there = sorted(path.stem for path in folder.glob("*.pt") if path.stem != TARGET)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = load(folder, TARGET, device)
    names = drafts_there if drafts is None else drafts
    return Decoder(target, {name: load(folder, name, device) for name in names}, SLOTS)


def version(decoder: Decoder) -> str:
    """Return the version of the models: a different one invalidates former measurements."""
    digest = hashlib.sha256()
    for name, model in decoder.models.items():
        digest.update(f"{name} {model.config}".encode())
        for weight in model.state_dict().values():
            digest.update(weight.cpu().numpy().tobytes())
    models = digest.hexdigest()[:16]
    return f"models {models}, {decoder.device.type}, torch {torch.__version__}"
