import pytest

from agents.devices.nvidia import energy
from tests.nvml.fixtures import library, nvml

__all__ = ["library", "nvml", "sparse_check"]


@pytest.fixture
def sparse_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample a counter ten times a second while it is checked, for tests that judge something else."""
    monkeypatch.setattr(energy, "POLL_S", energy.STEP_S)
