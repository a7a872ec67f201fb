"""The models of the text engine, their training, and their folder."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from tests.engines.text.model import TextModel, TextModelConfig
from tests.engines.text.tokenizer import VOCAB
from tuner.core import InvalidInput

TARGET = "target"
CONTEXT = 512


def _config(layers: int, dim: int) -> TextModelConfig:
    heads = dim // 32
    return TextModelConfig(VOCAB, dim, layers, heads, max(1, heads // 2), 8 * dim // 3, CONTEXT)


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """The parameters of the training: sizes, steps, batches and the seed.

    The target learns the corpus, each draft the target's distribution over it (Hinton et al. 2015, without
    a temperature; DistillSpec, Zhou et al. 2024, distils on what the draft itself writes instead). The
    drafts differ in depth and width, as Yan et al. 2024 compare them.
    """

    target: TextModelConfig = field(default_factory=lambda: _config(8, 384))
    drafts: Mapping[str, TextModelConfig] = field(
        default_factory=lambda: {
            "wide": _config(1, 256),
            "medium": _config(2, 128),
            "deep": _config(4, 96),
        }
    )
    target_steps: int = 450
    draft_steps: int = 250
    rows: int = 16
    tokens: int = 256
    rate: float = 2e-3
    seed: int = 0

    @property
    def key(self) -> str:
        """The name of its models' folder, which differs by recipe, Python version and format."""
        document = json.dumps(
            [2, asdict(self), platform.python_version(), torch.__version__], sort_keys=True
        )
        return hashlib.sha256(document.encode()).hexdigest()[:16]


def default_cache() -> Path:
    """Return the folder of trained models: the user's cache folder (XDG base directories)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jouletune" / "text"


def save(model: TextModel, folder: Path, name: str) -> None:
    """Write a model's weights and sizes; each file is written whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{name}.{os.getpid()}"
    torch.save(model.state_dict(), partial)
    (folder / f"{name}.json").write_text(json.dumps(asdict(model.config)) + "\n")
    partial.replace(folder / f"{name}.pt")


def load(folder: Path, name: str, device: torch.device) -> TextModel:
    """Return a trained model, ready to decode.

    Raises:
        InvalidInput: it is missing or damaged.
    """
    try:
        # torch reads other files as older formats, which fail in many ways.
        if not zipfile.is_zipfile(folder / f"{name}.pt"):
            raise ValueError("its weights are damaged or not there")
        sizes = json.loads((folder / f"{name}.json").read_text())
        weights = torch.load(folder / f"{name}.pt", map_location=device, weights_only=True)
        model = TextModel(TextModelConfig(**sizes))
        model.load_state_dict(weights)
    except (OSError, ValueError, TypeError, RuntimeError, EOFError) as error:
        raise InvalidInput(
            f"the model {name} in {folder} cannot be read: {error}",
            hint="delete the folder; it is trained again",
        ) from None
    return model.to(device).eval().requires_grad_(False)
