"""`make test` on a fresh machine skips tests without their programs, and names the way to install these."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import run_to_end

SOURCE = Path(__file__).parents[2]
NEEDING = (
    "tests/browser",
    "tests/chaos/test_boards_faults.py",
    "tests/chaos/test_boards_killed.py",
    "tests/integration/test_boards.py",
    "tests/integration/test_nvidia.py",
    "tests/integration/test_postgres.py",
    "tests/integration/test_prometheus.py",
    "tests/unit/deploy/test_units.py",
)
"""Tests that need something from a Debian package."""


def pytest_without_everything(*options: str) -> subprocess.CompletedProcess[str]:
    return run_to_end(
        [sys.executable, "-m", "pytest", "-p", "tests.bare", "-p", "no:cacheprovider", *options],
        cwd=SOURCE,
        timeout=550.0,
    )


@pytest.mark.slow
def test_every_test_is_collected_where_everything_is_missing() -> None:
    """Without libfuse the import of https://github.com/mxmlnkn/mfusepy raises OSError."""
    done = pytest_without_everything("--collect-only", "-q", "-m", "")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_missing_programs_skip_tests_with_reason_and_remedy() -> None:
    done = pytest_without_everything("-q", "-rs", "-m", "not long", *NEEDING)
    assert done.returncode == 0, done.stdout[-3000:]
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)$", done.stdout, re.MULTILINE)
    assert len(reasons) >= 5
    assert [reason for reason in reasons if "apt install" not in reason] == []
    packages = ("fuse3", "postgresql", "chromium", "gcc", "prometheus", "systemd")
    assert [p for p in packages if not any(p in reason for reason in reasons)] == []
