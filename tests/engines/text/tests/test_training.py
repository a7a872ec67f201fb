from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from tests.engines.text.model import TextModelConfig
from tests.engines.text.recipe import TARGET, TrainingRecipe, load
from tests.engines.text.tokenizer import VOCAB
from tests.engines.text.training import ShownProgress, trained

TEXT = 60 * bytes(range(97, 123))
TINY = TextModelConfig(VOCAB, 32, 1, 2, 1, 64, 64)
RECIPE = TrainingRecipe(
    TINY, {"small": TINY}, target_steps=80, draft_steps=40, rows=8, tokens=26, rate=1e-2
)


class Told:
    """The recorded progress of a training; on request it aborts at a model."""

    def __init__(self, breaks_at: str = "") -> None:
        self.bits: dict[str, list[float]] = {}
        self._breaks_at = breaks_at

    def __call__(self, name: str, step: int, steps: int, bits: float) -> None:
        if name == self._breaks_at:
            raise KeyboardInterrupt
        self.bits.setdefault(name, []).append(bits)


def test_the_target_learns_the_text_and_a_draft_the_target(tmp_path: Path) -> None:
    progress = Told()
    folder = trained(RECIPE, tmp_path, progress, TEXT)
    assert [len(progress.bits[name]) for name in (TARGET, "small")] == [80, 40]
    assert progress.bits[TARGET][0] > 7.0 and progress.bits[TARGET][-1] < 0.5
    cpu = torch.device("cpu")
    tokens = torch.tensor([list(TEXT[:52])])
    target, small = (load(folder, name, cpu)(tokens).argmax(-1) for name in (TARGET, "small"))
    assert (target == small).float().mean() > 0.9


def test_the_same_recipe_gives_the_same_models_and_is_trained_once(tmp_path: Path) -> None:
    first, again, elsewhere = Told(), Told(), Told()
    folder = trained(RECIPE, tmp_path, first, TEXT)
    assert trained(RECIPE, tmp_path, again, TEXT) == folder
    assert again.bits == {}
    trained(RECIPE, tmp_path / "elsewhere", elsewhere, TEXT)
    assert elsewhere.bits == first.bits


def test_models_trained_before_an_interrupt_are_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained(RECIPE, tmp_path, Told(breaks_at="small"), TEXT)
    progress = Told()
    trained(RECIPE, tmp_path, progress, TEXT)
    assert set(progress.bits) == {"small"}


def test_two_trainings_at_once_train_one_model(tmp_path: Path) -> None:
    progress = [Told(), Told()]
    threads = [threading.Thread(target=trained, args=(RECIPE, tmp_path, t, TEXT)) for t in progress]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(t.bits) for t in progress) == [0, 2]


def test_progress_is_shown_at_each_models_end(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ShownProgress(every_s=1000.0)
    for step in (1, 2):
        shown(TARGET, step, 2, 1.5)
    assert capsys.readouterr().err == (
        "training target: step 2 of 2, 1.50 bits a byte, 0 s so far\n"
    )
