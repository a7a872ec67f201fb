"""Fixtures over the fake NVML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.nvml.fake import FakeNvml, build, compiler


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("no C compiler here to build the fake NVML with: apt install gcc libc6-dev")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """Yield a fresh fake on manual time, with pynvml on top of it."""
    fake = FakeNvml(library, tmp_path / "nvml.state", manual=True, root_only=0.0)
    monkeypatch.setattr(pynvml, "nvmlLib", fake.binding)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield fake
    fake.binding.fakenvml_use(str(tmp_path / "nobody.state").encode())
