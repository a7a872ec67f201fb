"""Objects loaded at the start are exempt from garbage collection; later ones are not."""

from __future__ import annotations

import gc
import weakref

import pytest

from tuner.garbage import leave_alone_too, uncollected


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
