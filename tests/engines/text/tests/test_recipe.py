from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engines.text.recipe import TARGET, TrainingRecipe, load, save
from tests.engines.text.tests.tiny import tiny
from tests.errors import raised
from tuner.core import InvalidInput

CPU = torch.device("cpu")


def test_a_loaded_model_computes_the_same_as_the_saved_one(tmp_path: Path) -> None:
    model = tiny(2, 32, 0)
    save(model, tmp_path, TARGET)
    tokens = torch.tensor([[256, 100, 101]])
    assert torch.equal(load(tmp_path, TARGET, CPU)(tokens), model(tokens))
    assert {path.name for path in tmp_path.iterdir()} == {"target.pt", "target.json"}


@pytest.mark.parametrize("left", [b"", b"rubbish", b"PK\x03\x04rubbish"])
def test_a_damaged_model_is_named_with_the_way_out(tmp_path: Path, left: bytes) -> None:
    save(tiny(1, 32, 0), tmp_path, TARGET)
    (tmp_path / "target.pt").write_bytes(left)
    with raised(InvalidInput, tmp_path):
        load(tmp_path, TARGET, CPU)


def test_weights_that_do_not_fit_the_sizes_are_named(tmp_path: Path) -> None:
    save(tiny(1, 32, 0), tmp_path, TARGET)
    save(tiny(2, 32, 0), tmp_path, "other")
    (tmp_path / "other.json").replace(tmp_path / "target.json")
    with raised(InvalidInput, "read"):
        load(tmp_path, TARGET, CPU)


def test_another_recipe_has_another_key() -> None:
    assert TrainingRecipe().key == TrainingRecipe().key
    assert TrainingRecipe().key != TrainingRecipe(seed=1).key
