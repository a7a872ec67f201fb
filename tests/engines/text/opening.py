"""Opens the engine's models, and trains them first if necessary."""

from __future__ import annotations

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
    folder = trained(recipe, cache, progress)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = load(folder, TARGET, device)
    return Decoder(target, {name: load(folder, name, device) for name in recipe.drafts}, SLOTS)
