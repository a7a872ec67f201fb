"""The batch-size study on this machine's CPU, and its comparison with a measurement of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.hardware import batch_study


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    os.getloadavg()[0] > 1.0, reason="other programs change the CPU time of an item"
)
def test_the_products_saving_agrees_with_a_measurement_in_turns(tmp_path: Path) -> None:
    output = tmp_path / "batch.json"
    # A busy machine answers too few requests to bound a p99.
    options = [
        "--constraint",
        "latency_p50_ms <= 4x baseline",
        "--trials",
        "4",
        "--window",
        "2",
        "--rounds",
        "4",
        "--foreign-share",
        "1",
    ]
    assert batch_study.main([*options, "--output", str(output)]) == 0
    report = json.loads(output.read_text())
    assert {name for t in report["study"]["trials"] for name in t["setting"]} == {"batch_size"}
    assert report["in_turns"][1] > 0.0


def test_a_saving_is_of_paired_rounds() -> None:
    assert batch_study.saving([10.0, 20.0], [5.0, 10.0]) == (0.5, 0.0)
