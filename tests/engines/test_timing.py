from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.errors import raised
from tests.processes import children

pytest.importorskip("torch", reason="the reference workload needs torch")

from agents.workloads.reference.catalogue import REFERENCE
from agents.workloads.reference.instance import Recipe
from agents.workloads.reference.slab import inputs
from tests.engines.timing import Timer
from tuner.core import InvalidInput


def test_a_batch_is_timed_on_instances_that_end_with_the_timer() -> None:
    which = REFERENCE
    others = set(_children())
    cores = sorted(os.sched_getaffinity(0))[:1]
    with Timer(Recipe(which, 0, 8, inputs(which, 0), 32), cores, Path("/proc/stat")) as timer:
        small = timer.window([(1, 1)], 0.05, "")
        large = timer.window([(1, 32)], 0.05, "")
        assert timer.own_bytes("") > 1 << 20 and timer.own_bytes("glibc-keep") == 0
        with raised(InvalidInput, "than 1"):
            timer.window([(1, 1), (1, 1)], 0.05, "")
        workers = set(_children()) - others
        assert len(workers) == 1
    assert 0.0 < small.latency_s < large.latency_s
    assert small.stderr_s > 0.0 and 0.0 <= small.foreign <= 1.0
    assert workers.isdisjoint(_children())


def _children() -> list[int]:
    return children(os.getpid())
