"""A real GPU, or a skip with the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.devices.nvidia.knobs import NvidiaKnobs, discover
from tuner.core import TuningError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def knobs() -> NvidiaKnobs:
    if os.environ.get("JOULETUNE_HARDWARE") != "1":
        pytest.skip("only `make test-hardware` looks at the hardware")
    try:
        discovered = [gpu for gpu in discover() if isinstance(gpu, NvidiaKnobs)]
    except TuningError as error:
        pytest.skip(f"no GPU that answers: {error}")
    if not discovered:
        pytest.skip("no NVIDIA driver is installed here")
    return discovered[0]


@pytest.fixture(scope="session")
def served(knobs: NvidiaKnobs) -> Iterator[dict[str, str]]:
    """Yield the URL of a torch classifier on the GPU, which keeps it busy meanwhile."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.torch_server"],
        stdout=subprocess.PIPE,
        env=environ,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, "torch is not installed here, or cannot run: install one with CUDA"
        about = json.loads(line)
        yield {**about, "pid": str(server.pid)}
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


@pytest.fixture
def loaded(served: dict[str, str]) -> dict[str, str]:
    assert served["on"] == "cuda", "this torch has no CUDA, so nothing loads the GPU: install one"
    return served
