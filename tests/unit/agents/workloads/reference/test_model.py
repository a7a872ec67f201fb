from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the reference workload needs torch")

from agents.workloads.reference.resnet18 import CLASSES, classifier  # noqa: E402
from agents.workloads.reference.slab import inputs  # noqa: E402


def test_at_full_width_it_has_the_parameters_of_resnet_18() -> None:
    # 11 689 512 as published for 1000 classes, of which the last layer has 513 000.
    body = list(classifier(seed=0, width=64).children())[:-1]
    assert sum(p.numel() for layer in body for p in layer.parameters()) == 11_689_512 - 513_000


def test_the_seed_decides_weights_and_images() -> None:
    with torch.inference_mode():
        scores = [classifier(seed, 8)(images(seed)[:4]) for seed in (3, 3, 4)]
    assert scores[0].shape == (4, CLASSES)
    assert torch.equal(scores[0], scores[1])
    assert not torch.allclose(scores[0], scores[2])
