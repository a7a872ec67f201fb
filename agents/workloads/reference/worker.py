"""One instance of the classifier: a process that answers lines of JSON on an inherited socket.

`{"images": [3, 17]}` is answered with `{"labels": [5, 80]}`, and `{"cores": [0, 1], "threads": 2,
"batch_size": 4}` with what is then in force. The end of the stream ends the process, so that it
cannot outlive the server, however that died.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agents.workloads.reference.model import IMAGES, classifier, images


class Worker:
    """The model of one process, and where it runs."""

    def __init__(self, model: nn.Module, pictures: Tensor) -> None:
        self._model = model
        self._pictures = pictures

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to one message."""
        if "images" in message:
            return {"labels": self.classify(message["images"])}
        self.place(message["cores"], message["threads"])
        self.classify(list(range(message["batch_size"])))
        return {"cores": sorted(os.sched_getaffinity(0)), "threads": torch.get_num_threads()}

    def classify(self, items: Sequence[int]) -> list[int]:
        """Return the label of each image."""
        with torch.inference_mode():
            scores = self._model(self._pictures[[i % IMAGES for i in items]])
        return [int(label) for label in scores.argmax(dim=1)]

    def place(self, cores: Sequence[int], threads: int) -> None:
        """Pin every thread of this process and set how many compute.

        No restart is needed: OpenMP builds its team anew at the next parallel region, and a new
        thread inherits the affinity of the one that starts it. The process starts unpinned on
        purpose: libgomp shortens its spinning for good when it wakes up with fewer cores than
        threads, and a worker that was widened later would differ from a fresh one.
        """
        for task in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)
        torch.set_num_threads(threads)


def main() -> None:
    """Serve until the other end of the socket closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--width", type=int, required=True)
    options = parser.parse_args()
    # A Ctrl-C reaches the whole terminal; the server decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=options.fd)
    worker = Worker(classifier(options.seed, options.width), images(options.seed))
    channel.sendall(b'{"ready": true}\n')
    with channel.makefile("rb") as lines:
        for line in lines:
            channel.sendall(json.dumps(worker.answer(json.loads(line))).encode() + b"\n")
    os._exit(0)  # The interpreter's own end takes torch some 100 ms.


if __name__ == "__main__":
    main()
