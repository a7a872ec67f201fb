"""Memory shared by the front and one worker: a batch of inputs, and a label for each.

The front writes the inputs of a batch; the worker reads them as its own tensor and writes the
labels. Only their number goes over the socket. The file has no name, so it vanishes with the last
process that holds it, even after a kill.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agents.workloads.reference.catalogue import Model

POOL = 64
"""Number of synthetic inputs; an item of the workload is an index into them."""

Inputs = NDArray[np.float32] | NDArray[np.int64]


def inputs(model: Model, seed: int) -> Inputs:
    """Return the synthetic inputs, `POOL` × the model's shape; the same seed gives the same."""
    rng = np.random.default_rng(seed)
    shape = (POOL, *model.shape)
    if model.below:
        return rng.integers(0, model.below, shape, dtype=np.int64)
    return rng.standard_normal(shape, dtype=np.float32)


def layout(model: Model, items: int) -> tuple[int, int]:
    """Return the offset of the labels, and the length of the file, in bytes."""
    width = np.dtype(model.dtype).itemsize * int(np.prod(model.shape))
    labels_at = -(-items * width // mmap.PAGESIZE) * mmap.PAGESIZE
    return labels_at, labels_at + 8 * items


class Slab:
    """The front's end of the shared memory; the worker inherits `file`."""

    def __init__(self, model: Model, items: int) -> None:
        labels_at, size = layout(model, items)
        self.file = os.memfd_create("jouletune-batch")
        os.ftruncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)
        count = items * int(np.prod(model.shape))
        flat = np.frombuffer(self._memory, model.dtype, count)
        self._inputs = flat.reshape(items, *model.shape)
        self._labels = np.frombuffer(self._memory, np.int64, items, labels_at)

    def fill(self, pool: Inputs, items: Sequence[int]) -> None:
        """Write the inputs of a batch."""
        np.take(pool, [i % POOL for i in items], axis=0, out=self._inputs[: len(items)])

    def labels(self, count: int) -> list[int]:
        """Return the labels of the last answered batch."""
        return [int(label) for label in self._labels[:count]]

    def close(self) -> None:
        """Release the file; the memory goes with the last view of it."""
        os.close(self.file)
