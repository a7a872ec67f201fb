from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agents.actuator_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "b")
