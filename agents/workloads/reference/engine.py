"""The torch side of a worker: the model, the shared memory as tensors, and CPU placement."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agents.workloads.reference.catalogue import Model
from agents.workloads.reference.slab import layout


class Engine:
    """One instance of a model, fed through shared memory with room for `items`."""

    def __init__(self, model: Model, seed: int, width: int, slab: int, items: int) -> None:
        self._network = build(model, seed, width)
        self._warm: set[tuple[int, int]] = set()
        labels_at, size = layout(model, items)
        memory = mmap.mmap(slab, size)
        dtype: torch.dtype = getattr(torch, model.dtype)
        count = items * torch.Size(model.shape).numel()
        flat = torch.frombuffer(memory, dtype=dtype, count=count)
        self._inputs = flat.view(items, *model.shape)
        self._labels = torch.frombuffer(memory, dtype=torch.int64, count=items, offset=labels_at)

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to one message."""
        if "run" in message:
            self.run(message["run"])
            return {"done": message["run"]}
        self.place(message["cores"], message["threads"])
        self.warm(message["batch_size"])
        return {"cores": sorted(os.sched_getaffinity(0)), "threads": torch.get_num_threads()}

    def run(self, count: int) -> None:
        """Label the first `count` inputs of the shared memory."""
        with torch.inference_mode():
            self._labels[:count] = self._network(self._inputs[:count]).argmax(dim=1)

    def warm(self, batch_size: int) -> None:
        """Run every power of two up to a batch size that these threads have not run.

        Kernels are prepared for each shape and number of threads, and kept.
        """
        for count in sorted({1 << k for k in range(batch_size.bit_length())} | {batch_size}):
            if (torch.get_num_threads(), count) not in self._warm:
                self.run(count)
                self._warm.add((torch.get_num_threads(), count))

    def place(self, cores: Sequence[int], threads: int) -> None:
        """Pin every thread of this process and set the number of threads that compute.

        OpenMP builds its team at the next parallel region, and a new thread inherits the affinity of
        the one that starts it. The process starts unpinned on purpose, as libgomp shortens its spinning
        for good if it starts with fewer cores than threads.
        """
        for task in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # The loading thread may end meanwhile.
                os.sched_setaffinity(int(task.name), cores)
        torch.set_num_threads(threads)


def build(model: Model, seed: int, width: int) -> nn.Module:
    """Return a model in eval mode; the same seed and width give the same weights."""
    module, _, name = model.built_by.partition(":")
    builder: Callable[[int, int], nn.Module] = getattr(import_module(module), name)
    return builder(seed, width)
