"""The real llama-servers, and models for them; without them tests are skipped with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.llama.build import SOURCES, Unbuildable, llama_server
from tests.llama.running import RunningProxy, proxy_for

SLOTS = 4
CONTEXT = 1024


@dataclass(frozen=True)
class RealServer:
    """One version of the real server, and its models."""

    version: str
    program: Path
    folder: Path

    @property
    def target(self) -> Path:
        return self.folder / "target.gguf"

    @property
    def draft(self) -> Path:
        return self.folder / "draft.gguf"

    def command(self, *options: str) -> list[str]:
        exact = ["-ctk", "f32", "-ctv", "f32"]  # keys and values in 32 bits, as in PyTorch
        size = ["-np", str(SLOTS), "-c", str(SLOTS * CONTEXT), "-t", "1"]
        return [str(self.program), "-m", str(self.target), *size, *exact, *options]


@pytest.fixture(scope="session")
def gguf_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="gguf is not installed: make test-llama installs it")
    from tests.engines.gguf_model import write_gguf
    from tests.llama.models import DRAFT, TARGET, weights

    folder = tmp_path_factory.mktemp("models")
    write_gguf(folder / "target.gguf", "target", TARGET, weights(TARGET))
    write_gguf(folder / "draft.gguf", "draft", DRAFT, weights(TARGET))
    return folder


@pytest.fixture(scope="session", params=sorted(SOURCES, reverse=True))
def real(request: pytest.FixtureRequest, gguf_models: Path) -> RealServer:
    try:
        program = llama_server(request.param)
    except Unbuildable as error:
        pytest.skip(f"llama-server {request.param} cannot be built here: {error}")
    return RealServer(request.param, program, gguf_models)


@pytest.fixture(scope="session")
def proxy(real: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    folder = tmp_path_factory.mktemp("proxy")
    with proxy_for(real.command(), {"d": real.draft}, folder) as running:
        yield running
