from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the reference workload needs torch")

from agents.workloads.reference.catalogue import REFERENCE, Model  # noqa: E402
from agents.workloads.reference.resnet18 import classifier  # noqa: E402
from agents.workloads.reference.slab import Slab  # noqa: E402


def test_at_full_width_it_has_the_parameters_of_resnet_18() -> None:
    # Published: 11,689,512 parameters for 1,000 classes; the last layer has 513,000 of them.
    body = list(classifier(seed=0, width=64).children())[:-1]
    assert sum(p.numel() for layer in body for p in layer.parameters()) == 11_689_512 - 513_000


def test_shared_memory_leaves_no_file_behind() -> None:
    slab = Slab(REFERENCE, 16)
    assert str(Path(f"/proc/self/fd/{slab.file}").readlink()).startswith("/memfd:")
    slab.close()


def test_a_model_reaches_its_worker_as_text() -> None:
    assert Model.parsed(REFERENCE.text()) == REFERENCE
