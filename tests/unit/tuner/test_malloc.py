"""Freed memory, which the C library keeps until it is asked for it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner import malloc

PIECES = 2000
PIECE_BYTES = 64 * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_was_freed_is_given_back() -> None:
    pieces = [bytearray(b"x" * PIECE_BYTES) for _ in range(PIECES)]
    pinned = pieces[:: PIECES // 4]
    del pieces
    before = resident_bytes()
    malloc.trim()
    assert before - resident_bytes() > PIECES * PIECE_BYTES / 2
    assert len(pinned) == 4


def test_threads_share_two_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *of: asked.append(of))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    malloc.share()
    assert asked == [(-8, 2)]


def test_a_c_library_that_has_neither_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Musl:
        def __getattr__(self, name: str) -> object:
            asked.append(name)
            raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Musl())
    malloc.share()
    malloc.trim()
    assert asked == ["mallopt", "malloc_trim"]
