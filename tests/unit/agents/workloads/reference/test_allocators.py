from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from agents.workloads.reference.allocators import allocators

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc"
)


def installed(root: Path, *files: str) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_glibc_is_offered_twice_and_keeps_memory_by_default(tmp_path: Path) -> None:
    assert list(allocators(tmp_path, {})) == ["glibc-keep", "glibc"]
    assert not any(allocators(tmp_path, {}).values()), "neither needs a variable"


def test_an_installed_allocator_is_preloaded_from_any_folder(tmp_path: Path) -> None:
    tcmalloc = "usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
    jemalloc = "usr/lib64/libjemalloc.so.2"
    installed(tmp_path, tcmalloc, "usr/lib64/libtcmalloc.so.4", jemalloc)
    environments = allocators(tmp_path, {})
    assert list(environments) == ["glibc-keep", "glibc", "tcmalloc", "jemalloc"]
    assert environments["tcmalloc"] == {"LD_PRELOAD": str(tmp_path / tcmalloc)}
    assert environments["jemalloc"]["LD_PRELOAD"] == str(tmp_path / jemalloc)
    assert "dirty_decay_ms" in environments["jemalloc"]["MALLOC_CONF"]


@pytest.mark.parametrize("name", ["LD_PRELOAD", "MALLOC_CONF", "MALLOC_ARENA_MAX"])
def test_a_foreign_setting_stays(tmp_path: Path, name: str) -> None:
    assert allocators(tmp_path, {name: "x", "HOME": "/"}) == {}
