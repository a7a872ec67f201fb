"""A workload of instances, threads and batches that sleeps instead of computing, as a process.

It speaks the workload contract as the reference server does. Its instances are threads that sleep, so
its timing is known and hardly depends on the machine's load, and Packrat's correct result is known
beforehand.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

from agents.workloads.reference.knobs import knob_space
from tests.integration.spoken import Spoken, serve

CORES = 2
SPACE = knob_space(CORES)


def seconds(instances: int, threads: int, items: int) -> float:
    """Return the seconds of a batch: threads help little, other instances slow it a little."""
    slower = 1.0 + 0.1 * (instances - 1) * threads / CORES
    return 0.030 * (0.4 + 0.6 / math.sqrt(threads)) * (1.0 + 0.25 * (items - 1)) * slower


class Batching(ThreadingHTTPServer):
    """The server, its setting, and its totals."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.setting = {name: int(value) for name, value in SPACE.default.items()}
        self.items = self.batches = self.arrived = 0
        self.in_flight_s, self._under_way, self._at = 0.0, 0, time.monotonic()
        self.lock = threading.Lock()
        self.waiting: queue.SimpleQueue[threading.Event] = queue.SimpleQueue()
        for number in range(CORES):
            threading.Thread(target=self._instance, args=(number,), daemon=True).start()

    def serve(self) -> None:
        """Let any instance process one item."""
        done = threading.Event()
        self._move(1)
        self.waiting.put(done)
        done.wait()
        self._move(-1)

    def stats(self) -> dict[str, Any]:
        self._move(0)
        return {
            "cpu_s": time.process_time(),
            "items": self.items,
            "failed": 0,
            "pids": [],
            "batches": self.batches,
            "arrived": self.arrived,
            "in_flight_s": self.in_flight_s,
            "incarnation": str(os.getpid()),
        }

    def _move(self, change: int) -> None:
        with self.lock:
            now = time.monotonic()
            self.in_flight_s += self._under_way * (now - self._at)
            self._at, self._under_way = now, self._under_way + change
            self.arrived += max(0, change)

    def _instance(self, number: int) -> None:
        while True:
            if number >= self.setting["instances"]:
                time.sleep(0.01)
                continue
            batch = self._taken()
            if batch:
                instances, threads = self.setting["instances"], self.setting["threads"]
                time.sleep(seconds(instances, threads, len(batch)))
                with self.lock:
                    self.items, self.batches = self.items + len(batch), self.batches + 1
                for done in batch:
                    done.set()

    def _taken(self) -> list[threading.Event]:
        """Return waiting items: at most a batch, and at most this instance's share of it."""
        try:
            batch = [self.waiting.get(timeout=0.01)]
        except queue.Empty:
            return []
        time.sleep(0.004)  # like a dynamic batcher that waits for more
        while len(batch) < self.setting["batch_size"]:
            try:
                batch.append(self.waiting.get_nowait())
            except queue.Empty:
                break
        return batch


class Handler(Spoken):
    """One connection."""

    server: Batching

    def do_GET(self) -> None:
        if self.path == "/knobs":
            knobs = [
                {"name": k.name, "values": k.values, "default": k.default,
                 "cost": {"seconds": 0.2, "restart": False}}
                for k in SPACE.knobs
            ]  # fmt: skip
            about = {"name": "batching", "version": "1", "knobs": knobs}
            only = [dict(setting) for setting in SPACE.only]
            return self.answer(200, {**about, "only": only, "setting": self.server.setting})
        return self.answer(200, self.server.stats())

    def do_PUT(self) -> None:
        wanted = {**self.server.setting, **json.loads(self.body())}
        SPACE.check(wanted)
        self.server.setting = wanted
        self.answer(200, {"setting": wanted})

    def do_POST(self) -> None:
        self.body()
        self.server.serve()
        self.answer(200, {"label": 1})


if __name__ == "__main__":
    serve(Batching(int(sys.argv[1])))
