from __future__ import annotations

from pathlib import Path

import pytest

from agents.federated.fleet.devices import load_devices
from tests.bench.federated import compare
from tests.bench.federated.compare import Bench
from tests.bench.federated.play import FederationSetup


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ({"participants": 10, "batch_size": 8, "local_epochs": e} for e in (1, 5))
    monkeypatch.setattr(compare, "GRID", tuple(grid))
    monkeypatch.setattr(compare, "SEEDS", (0, 1))
    monkeypatch.setattr(compare, "OTHER_SEEDS", (9,))
    monkeypatch.setattr(compare, "POLICIES", ("fedgpo",))
    monkeypatch.setattr(compare, "OTHER_GOALS", {})


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("small")
def test_arms_are_compared_by_what_they_took_to_the_same_accuracy(tmp_path: Path) -> None:
    told: list[str] = []
    federation = FederationSetup("digits", None, load_devices(), rounds=8)
    found = Bench(tmp_path, 2, told.append).compare("digits", federation)
    defaults, fixed, _, ours = found.arms
    assert found.best_fixed["local_epochs"] == 5
    assert defaults.saving.mean == pytest.approx(1.0) and defaults.saving.stderr == 0.0
    assert fixed.saving.mean > 1.0 and fixed.reached == 2 and defaults.reached == 0
    assert ours.name == "fedgpo" and ours.energy_j.mean > 0.0
    assert len(list(tmp_path.glob("*.json"))) == 2 + 2 * 2
    assert len(found.curves["fedgpo"]) == len(found.settings)
    assert any("best fixed" in text for text in told)
