"""Opens the engine's models where they are trained already, and trains them where they are not."""

from __future__ import annotations

from pathlib import Path

import torch

from agents.workloads.reference.text.decoding import Decoder
from agents.workloads.reference.text.recipe import TARGET, TrainingRecipe, load
from agents.workloads.reference.text.training import Progress, trained

SLOTS = 32
"""Requests that decode at once."""


def open_decoder(recipe: TrainingRecipe, cache: Path, progress: Progress) -> Decoder:
    """Return the target with its drafts, on the GPU where there is one.

    Raises:
        InvalidInput: a trained model cannot be read.
    """
    folder = trained(recipe, cache, progress)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    drafts = {name: load(folder, name, device) for name in recipe.drafts}
    return Decoder(load(folder, TARGET, device), drafts, SLOTS)


def version(recipe: TrainingRecipe, decoder: Decoder) -> str:
    """Return what former measurements were made with: another word makes them void."""
    return f"models {recipe.key}, {decoder.device.type}, torch {torch.__version__}"
