"""Freed memory is kept until it is to be returned; objects loaded at the start are not collected."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import run_to_end
from tuner import process_memory
from tuner.process_memory import leave_alone_too, uncollected

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
    process_memory.trim()
    assert before - resident_bytes() > PIECES * PIECE_BYTES / 2
    assert len(pinned) == 4


def test_threads_share_two_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *of: options.append(of))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    process_memory.share()
    assert options == [(-8, 2)]


def test_memory_freed_by_a_pass_is_kept_and_not_mapped_separately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: dict[int, int] = {}
    library = SimpleNamespace(mallopt=lambda what, value: options.update({what: value}) or 1)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert process_memory.keep()
    assert options == {
        process_memory.M_MMAP_THRESHOLD: process_memory.LARGEST_PIECE_BYTES,
        process_memory.M_TRIM_THRESHOLD: process_memory.MOST_KEPT_BYTES,
        process_memory.M_TOP_PAD: process_memory.STEP_BYTES,
    }


@pytest.mark.parametrize("without", [True, False], ids=["maps none", "refuses all"])
def test_an_older_glibc_is_configured_to_map_no_block_separately(
    monkeypatch: pytest.MonkeyPatch, without: bool
) -> None:
    def mallopt(what: int, value: int) -> int:
        return what != process_memory.M_MMAP_THRESHOLD and without

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert process_memory.keep() is without


FAULTS = """
import resource, sys
from tuner import process_memory
if sys.argv[1] == "keep":
    assert process_memory.keep()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        bytearray(8 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
kept = faults()
process_memory.trim()
print(kept, faults())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_memory_that_is_kept_is_not_faulted_in_again_until_it_was_given_back() -> None:
    ran = run_to_end([sys.executable, "-c", FAULTS, "keep"], check=True)
    kept, after_trim = map(int, ran.stdout.split())
    assert kept < 100 < 1000 < after_trim


def test_a_preloaded_allocator_also_returns_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    library = SimpleNamespace(
        MallocExtension_ReleaseFreeMemory=lambda: calls.append("tcmalloc"),
        mallctl=lambda name, *_: calls.append(name),
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    process_memory.trim()
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
    process_memory.share()
    assert not process_memory.keep()
    process_memory.trim()
    assert {"mallopt", "malloc_trim"} < set(names)


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.slow
def test_earlier_objects_are_exempt_and_later_ones_collected() -> None:
    early = Node()
    kept = weakref.ref(early)
    with uncollected():
        del early
        late = weakref.ref(Node())
        gc.collect()
        assert late() is None
        assert kept() is not None
        assert gc.get_freeze_count() > 0
    gc.collect()
    assert kept() is None
    assert gc.get_freeze_count() == 0


def test_a_failure_inside_gives_everything_back() -> None:
    usual = gc.get_threshold()
    with pytest.raises(KeyError), uncollected():
        assert gc.get_threshold()[:2] == usual[:2], "what is young is collected as ever"
        assert gc.get_threshold()[2] > usual[2]
        raise KeyError("of the test")
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == usual


def test_objects_loaded_within_the_block_are_exempt_on_request() -> None:
    leave_alone_too()
    assert gc.get_freeze_count() == 0
    with uncollected():
        before = gc.get_freeze_count()
        loaded = [Node() for _ in range(1000)]
        leave_alone_too()
        # Some of the exempt objects may have been freed meanwhile.
        assert gc.get_freeze_count() > before + len(loaded) / 2
    assert gc.get_freeze_count() == 0
