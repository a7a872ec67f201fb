"""A pytest plugin that hides what a fresh machine lacks: `pytest -p tests.bare --hide gcc,libfuse`.

The named things are hidden: programs on the path, PostgreSQL's folder, libfuse and /dev/fuse.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = {
    "libfuse": ("fusermount3", "fusermount"),
    "postgresql": ("initdb", "pg_ctl", "pg_dump", "pg_restore", "psql"),
    "chromium": ("chromium", "chromium-browser"),
    "systemd": ("systemd-nspawn", "systemd-analyze", "mmdebstrap"),
    "gcc": ("gcc", "cc"),
    "prometheus": ("prometheus", "promtool", "prometheus-node-exporter"),
    "npm": ("npm",),
    "shellcheck": ("shellcheck",),
}
"""The things that may be hidden, and the programs by which each is found."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hide", default=",".join(PROGRAMS), help="what is to be missing")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    _hide(early_config.known_args_namespace.hide.split(","))


def _hide(missing: list[str]) -> None:
    names = {program for what in missing for program in PROGRAMS[what]}
    which, find, glob, exists = shutil.which, ctypes.util.find_library, Path.glob, Path.exists

    def hidden_which(
        cmd: str, mode: int = os.F_OK | os.X_OK, path: str | None = None
    ) -> str | None:
        return None if cmd in names else which(cmd, mode, path)

    def hidden_library(name: str) -> str | None:
        return None if "libfuse" in missing and "fuse" in name else find(name)

    def hidden_glob(self: Path, pattern: str, **options: bool) -> Iterator[Path]:
        found = glob(self, pattern, **options)
        gone = "postgresql" in missing and str(self) == "/usr/lib/postgresql"
        return iter(()) if gone else iter(found)

    def hidden_exists(self: Path, **options: bool) -> bool:
        return not ("libfuse" in missing and str(self) == "/dev/fuse") and exists(self, **options)

    shutil.which = hidden_which  # type: ignore[assignment]
    ctypes.util.find_library = hidden_library
    Path.glob = hidden_glob  # type: ignore[method-assign,assignment]
    Path.exists = hidden_exists  # type: ignore[method-assign]
    os.environ.pop("FUSE_LIBRARY_PATH", None)
    os.environ.pop("FUSE_LIBRARY_NAME", None)
