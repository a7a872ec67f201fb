"""The text server as a process with two tiny trained models, and a client of it.

The target has learnt two kinds of text: the repeated alphabet, which its draft has learnt, too, and
random capitals, which the draft has never seen. So the draft's proposals are accepted in the one and
rejected in the other.
"""

from __future__ import annotations

import json
import random
import string
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.engines.text.model import TextModelConfig
from tests.engines.text.recipe import TARGET, TrainingRecipe
from tests.engines.text.tokenizer import VOCAB
from tests.engines.text.training import trained
from tests.integration.reference import RunningServer

COMMAND = [sys.executable, "-m", "tests.engines.text.serve"]
DRAFT = "small"
KNOWN, UNKNOWN = string.ascii_lowercase, "QZXJKVWPMB"
"""Prompts with a continuation that the draft knows, and one that it does not."""
PLAN = {
    "rows": [
        {"below": 1.5, "setting": {"speculation_length": 6, "draft": DRAFT}, "at": 1.0},
        {"below": "Infinity", "setting": {"speculation_length": 2, "draft": DRAFT}},
    ],
    "by": "decoding_requests",
}


def make(folder: Path) -> Path:
    """Train both models in seconds; the folder is for the server's `--models`."""
    alphabet = 400 * KNOWN.encode()
    capitals = "".join(random.Random(0).choices(string.ascii_uppercase, k=10_000)).encode()
    target = _recipe(_config(4, 128), 120)
    draft = _recipe(_config(1, 32), 150)
    made = trained(target, folder / TARGET, _quietly, alphabet + capitals)
    small = trained(draft, folder / DRAFT, _quietly, alphabet)
    for suffix in ("pt", "json"):
        (small / f"{TARGET}.{suffix}").rename(made / f"{DRAFT}.{suffix}")
    return made


def _config(layers: int, dim: int) -> TextModelConfig:
    return TextModelConfig(VOCAB, dim, layers, dim // 16, dim // 32, 2 * dim, 256)


def _recipe(config: TextModelConfig, steps: int) -> TrainingRecipe:
    return TrainingRecipe(config, {}, target_steps=steps, rows=8, tokens=48, rate=5e-3)


def _quietly(name: str, step: int, steps: int, bits: float) -> None:
    """Show nothing."""


class RunningText(RunningServer):
    """The text server, and a client of it."""

    def __init__(self, models: Path, port: int = 0) -> None:
        super().__init__(*COMMAND, "--models", str(models), "--port", str(port))

    def complete(self, prompt: str = KNOWN, **fields: object) -> dict[str, Any]:
        body = {"prompt": prompt, "n_predict": 40, "ignore_eos": True, **fields}
        reply: dict[str, Any] = self.client.post("/completion", json=body).raise_for_status().json()
        return reply

    def streamed(self, prompt: str = KNOWN, **fields: object) -> list[dict[str, Any]]:
        """Return the events of a streamed completion."""
        body = {"prompt": prompt, "n_predict": 40, "ignore_eos": True, "stream": True, **fields}
        with self.client.stream("POST", "/generate", json=body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = list(response.iter_lines())
        return [json.loads(line.removeprefix("data: ")) for line in lines if line]

    @contextmanager
    def loaded(self, callers: int, prompt: str) -> Iterator[list[str]]:
        """Run this many callers, each with one completion after another; yield their errors."""
        wrong: list[str] = []
        stop = threading.Event()

        def ask() -> None:
            body = {"prompt": prompt, "n_predict": 150, "ignore_eos": True}
            with httpx2.Client(base_url=self.url, timeout=60.0, trust_env=False) as client:
                while not stop.is_set():
                    answer = client.post("/completion", json=body)
                    if answer.status_code != 200 or answer.json()["tokens_predicted"] != 150:
                        wrong.append(answer.text)

        threads = [threading.Thread(target=ask) for _ in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield wrong
        finally:
            stop.set()
            for thread in threads:
                thread.join()
