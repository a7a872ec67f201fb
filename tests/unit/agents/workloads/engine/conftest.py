"""Proxies in front of the fake server, with both ways of setting a length."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.llama.running import RunningProxy, proxy_for

STAND_IN = Path(__file__).with_name("stand_in.py")


def models(folder: Path, *, draft: str = "bytes") -> tuple[Path, Path]:
    """Write a target and a draft whose texts are their vocabularies."""
    target, drafting = folder / "target.gguf", folder / "draft.gguf"
    target.write_text("bytes")
    drafting.write_text(draft)
    return target, drafting


def stand_in(build: str, target: Path, *options: str) -> Sequence[str]:
    return [sys.executable, str(STAND_IN), "--build", build, "-m", str(target), *options]


@pytest.fixture(scope="package")
def by_restart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    folder = tmp_path_factory.mktemp("by-restart")
    target, draft = models(folder)
    with proxy_for(stand_in("0.3.36", target, "--step-ms", "2"), {"d": draft}, folder) as proxy:
        yield proxy


@pytest.fixture(scope="package")
def per_request(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    folder = tmp_path_factory.mktemp("per-request")
    target, draft = models(folder)
    with proxy_for(stand_in("0.3.16", target, "--step-ms", "2"), {"d": draft}, folder) as proxy:
        yield proxy
