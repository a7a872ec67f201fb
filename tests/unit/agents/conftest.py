from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import Rig
from tests.systemctl import FakeSystemctl
from tests.unit.agents.actuator.bench import Bench
from tests.unit.agents.actuator.site import Site


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "b")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture
def fake_systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemctl:
    """A `systemctl` that is found before the real one."""
    fake = FakeSystemctl(tmp_path / "systemctl-bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'systemctl-bin'}:{os.environ['PATH']}")
    return fake
