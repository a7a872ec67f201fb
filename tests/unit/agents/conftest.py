from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agents.actuator.bench import Bench
from tests.unit.agents.actuator.site import Site


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "b")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for process in site.processes:
        process.kill()
        process.wait()
