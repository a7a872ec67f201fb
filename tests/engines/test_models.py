from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.errors import raised

torch = pytest.importorskip("torch", reason="the models need torch")

from agents.workloads.reference.catalogue import Model  # noqa: E402
from agents.workloads.reference.engine import Engine, build  # noqa: E402
from agents.workloads.reference.slab import POOL, Slab, inputs  # noqa: E402
from tests.engines.models import MODELS, model  # noqa: E402
from tuner.core import InvalidInput  # noqa: E402

NARROW = {"reference": 8, "resnet50": 8, "mobilenet": 8, "bert": 24, "gpt2": 24}
every_model = pytest.mark.parametrize("which", MODELS.values(), ids=list(MODELS))


@every_model
def test_a_model_has_as_many_parameters_as_is_published(which: Model) -> None:
    with torch.device("meta"):
        network = build(which, 0, which.width)
    assert sum(p.numel() for p in network.parameters()) == which.parameters
    assert which.weight_bytes(which.width) == 4 * which.parameters


@every_model
def test_the_seed_decides_weights_inputs_and_labels(which: Model) -> None:
    def scores(seed: int) -> NDArray[np.float32]:
        with torch.inference_mode():
            network = build(which, seed, NARROW[which.name])
            found: NDArray[np.float32] = network(torch.from_numpy(inputs(which, 3)[:2])).numpy()
            return found

    assert inputs(which, 3).shape == (POOL, *which.shape)
    assert np.array_equal(scores(3), scores(3))
    assert not np.allclose(scores(3), scores(4))
    assert np.array_equal(inputs(which, 3), inputs(which, 3))
    assert not np.array_equal(inputs(which, 3), inputs(which, 4))


@every_model
def test_a_batch_through_shared_memory_is_labelled_as_the_model_labels_it(which: Model) -> None:
    width = NARROW[which.name]
    pool, slab = inputs(which, 0), Slab(which, 4)
    engine = Engine(which, 0, width, slab.file, 4)
    slab.fill(pool, [7, POOL + 1, 9])
    assert engine.answer({"run": 3}) == {"done": 3}
    with torch.inference_mode():
        alone = build(which, 0, width)(torch.from_numpy(pool[[7, 1, 9]])).argmax(dim=1)
    assert slab.labels(3) == alone.tolist()
    slab.fill(pool, [1, 7])
    engine.answer({"run": 2})
    assert slab.labels(3) == [alone[1], alone[0], alone[2]]
    slab.close()


def test_an_unknown_model_is_refused_with_the_existing_ones() -> None:
    with raised(InvalidInput, "resnet50"):
        model("resnet5")
