"""Freed memory, which the C library keeps until it is told to return it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner import malloc

PIECES = 2000
PIECE_BYTES = 64 * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_freed_memory_is_returned() -> None:
    pieces = [bytearray(b"x" * PIECE_BYTES) for _ in range(PIECES)]
    pinned = pieces[:: PIECES // 4]
    del pieces
    before = resident_bytes()
    malloc.trim()
    assert before - resident_bytes() > PIECES * PIECE_BYTES / 2
    assert len(pinned) == 4


def test_threads_share_two_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *of: options.append(of))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    malloc.share()
    assert options == [(-8, 2)]


def test_memory_freed_by_a_pass_is_kept_and_not_mapped_separately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: dict[int, int] = {}
    library = SimpleNamespace(mallopt=lambda what, value: options.update({what: value}) or 1)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert malloc.keep()
    assert options == {
        malloc.M_MMAP_THRESHOLD: malloc.LARGEST_PIECE_BYTES,
        malloc.M_TRIM_THRESHOLD: malloc.MOST_KEPT_BYTES,
        malloc.M_TOP_PAD: malloc.STEP_BYTES,
    }


@pytest.mark.parametrize("without", [True, False], ids=["maps none", "refuses all"])
def test_an_older_glibc_is_configured_to_map_no_block_separately(
    monkeypatch: pytest.MonkeyPatch, without: bool
) -> None:
    def mallopt(what: int, value: int) -> int:
        return what != malloc.M_MMAP_THRESHOLD and without

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert malloc.keep() is without


FAULTS = """
import resource, sys
from tuner import malloc
if sys.argv[1] == "keep":
    assert malloc.keep()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        bytearray(8 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
kept = faults()
malloc.trim()
print(kept, faults())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_memory_that_is_kept_is_not_faulted_in_again_until_it_was_given_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS, "keep"], capture_output=True, text=True, check=True
    )
    kept, after_trim = map(int, ran.stdout.split())
    assert kept < 100 < 1000 < after_trim


def test_a_preloaded_allocator_also_returns_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    library = SimpleNamespace(
        MallocExtension_ReleaseFreeMemory=lambda: calls.append("tcmalloc"),
        mallctl=lambda name, *_: calls.append(name),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    malloc.trim()
    assert calls == ["tcmalloc", b"arena.4096.purge"]


def test_a_c_library_without_these_functions_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []

    class Musl:
        def __getattr__(self, name: str) -> object:
            names.append(name)
            raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Musl())
    malloc.share()
    assert not malloc.keep()
    malloc.trim()
    assert {"mallopt", "malloc_trim"} < set(names)
