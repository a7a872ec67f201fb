"""Trains the engine's models at first use: `python -m tests.engines.text.training`.

Minutes on two cores; seeded, kept outside the repository, shown while it runs. If the processor
multiplies bfloat16 in hardware, passes use it; otherwise they use single precision and take longer.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.engines.text import corpus
from tests.engines.text.model import TextModel, TextModelConfig
from tests.engines.text.recipe import TARGET, TrainingRecipe, default_cache, load, save
from tuner import process_memory

LOG = logging.getLogger(__name__)
WARM_UP = 0.05
"""The share of the steps over which the learning rate grows to its full size."""

Progress = Callable[[str, int, int, float], None]
"""Called with a model, its step, the number of steps, and the loss in bits per byte."""


def trained(
    recipe: TrainingRecipe, cache: Path, progress: Progress, text: bytes | None = None
) -> Path:
    """Return the folder of a recipe's models; train the missing ones now.

    One process trains at a time, the others wait for it. Models that were trained before an interrupt
    are kept.
    """
    folder = cache / recipe.key
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        names = [name for name in (TARGET, *recipe.drafts) if not (folder / f"{name}.pt").exists()]
        if not names:
            return folder
        data = torch.frombuffer(bytearray(text or corpus.training_bytes()), dtype=torch.uint8)
        if TARGET in names:
            save(_target(recipe, data, progress), folder, TARGET)
        target = load(folder, TARGET, torch.device("cpu"))
        for name in names:
            if name != TARGET:
                config = recipe.drafts[name]
                save(_draft(recipe, config, name, target, data, progress), folder, name)
    return folder


def _target(recipe: TrainingRecipe, data: Tensor, progress: Progress) -> TextModel:
    """Return the target, which learns the next byte."""
    torch.manual_seed(recipe.seed)
    model = TextModel(recipe.target)

    def loss(rows: Tensor) -> Tensor:
        logits = model(rows[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())

    _fit(model, loss, recipe, recipe.target_steps, data, TARGET, progress)
    return model


def _draft(
    recipe: TrainingRecipe,
    config: TextModelConfig,
    name: str,
    target: TextModel,
    data: Tensor,
    progress: Progress,
) -> TextModel:
    """Return a draft, which learns the target's distribution of the next byte."""
    torch.manual_seed(recipe.seed + 1)
    model = TextModel(config)

    def loss(rows: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = target(rows[:, :-1]).float().softmax(-1)
        logits = model(rows[:, :-1]).float()
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(0, 1))

    _fit(model, loss, recipe, recipe.draft_steps, data, name, progress)
    return model


def _fit(
    model: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    recipe: TrainingRecipe,
    steps: int,
    data: Tensor,
    name: str,
    progress: Progress,
) -> None:
    """Train in place: AdamW, a cosine from the full rate to a tenth of it, gradients clipped to norm 1."""
    optimiser = torch.optim.AdamW(
        model.parameters(), recipe.rate, betas=(0.9, 0.95), weight_decay=0.1
    )
    warm = max(1, round(WARM_UP * steps))

    def rate(step: int) -> float:
        cosine = 0.55 + 0.45 * math.cos(math.pi * step / steps)
        return min(1.0, (step + 1) / warm) * cosine

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    places = torch.Generator().manual_seed(recipe.seed)
    fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    for step in range(steps):
        starts = torch.randint(0, len(data) - recipe.tokens - 1, (recipe.rows,), generator=places)
        rows = torch.stack([data[s : s + recipe.tokens + 1] for s in starts.tolist()]).long()
        with torch.autocast("cpu", torch.bfloat16, enabled=fast):
            loss = loss_of(rows)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        progress(name, step + 1, steps, loss.item() / math.log(2.0))


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class ShownProgress:
    """Writes a line to standard error every few seconds, and at each model's end."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s = every_s
        self._began = self._shown = time.monotonic()

    def __call__(self, name: str, step: int, steps: int, bits: float) -> None:
        """Show a step if it is time."""
        now = time.monotonic()
        if now - self._shown < self._every_s and step < steps:
            return
        self._shown = now
        sys.stderr.write(
            f"training {name}: step {step} of {steps}, {bits:.2f} bits a byte, "
            f"{now - self._began:.0f} s so far\n"
        )
        sys.stderr.flush()


def main() -> int:
    """Train the missing models, and print the folder."""
    parser = argparse.ArgumentParser(description="Train the text engine's models.")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where they are kept")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    process_memory.keep()
    folder = trained(TrainingRecipe(seed=options.seed), options.cache, ShownProgress())
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
