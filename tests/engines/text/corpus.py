"""Text available on every machine: the source of Python's standard library."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

HELD_OUT = 20
"""One in this many files is held out for prompts, and not used in training."""
PROMPT_BYTES = 96


def files(folder: Path | None = None) -> list[Path]:
    """Return the library's modules and packages, without tests and installed packages, in order."""
    root = folder or Path(sysconfig.get_paths()["stdlib"])
    left_out = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
    paths = (p for p in root.rglob("*.py") if not left_out & set(p.relative_to(root).parts))
    return sorted(paths, key=lambda path: path.relative_to(root).as_posix())


def training_bytes(folder: Path | None = None) -> bytes:
    """Return the training data of the models: all files except the held-out ones."""
    return b"".join(p.read_bytes() for k, p in enumerate(files(folder)) if k % HELD_OUT)


def prompts(count: int, seed: int, folder: Path | None = None) -> list[str]:
    """Return pieces of held-out files, each from the beginning of a line; the same seed gives the same."""
    held_out = [p.read_text(errors="ignore") for p in files(folder)[::HELD_OUT]]
    long_enough = [text for text in held_out if len(text) > 4 * PROMPT_BYTES]
    rng, texts = random.Random(seed), []
    for _ in range(count):
        text = rng.choice(long_enough)
        start = text.rfind("\n", 0, rng.randrange(len(text) - 2 * PROMPT_BYTES)) + 1
        texts.append(text[start : start + PROMPT_BYTES])
    return texts
