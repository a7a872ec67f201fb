"""A server of the workload contract whose only knob is the batch size, which needs no right to write.

A batch starts when as many requests wait as the knob says; it runs on the GPU by its CUDA driver, or on a
CPU by the standard library.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.hardware.first_hour.cuda import Cuda, NoCuda
from tests.hardware.first_hour.kernels import COMPUTE

SIZES = (1, 2, 4)
"""The product's load has four callers."""
LONGEST_WAIT_S = 0.05
BLOCKS_AN_ITEM = 256
"""The blocks of a kernel for each item of a batch: four items occupy an A100 or H100."""
FIXED, TERMS = 4, 20_000
"""On a CPU a batch costs this many items more, and an item is a sum of this many terms."""


class Batches:
    """The waiting requests, and the items done."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self._work, self._waiting = work, queue.Queue[threading.Event]()
        self.size, self.items = SIZES[0], 0

    def run(self) -> None:
        """Run batches for ever."""
        while True:
            batch, until = [self._waiting.get()], time.monotonic() + LONGEST_WAIT_S
            try:
                while len(batch) < self.size:
                    batch.append(self._waiting.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                pass
            self._work(len(batch))
            self.items += len(batch)
            for one in batch:
                one.set()

    def infer(self) -> None:
        """Wait for the end of the batch that this request is in."""
        done = threading.Event()
        self._waiting.put(done)
        done.wait()


def handler(batches: Batches) -> type[BaseHTTPRequestHandler]:
    """Return the routes of the contract over the batches."""

    class Routes(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet per response: two wait 40 ms for each other

        def do_GET(self) -> None:
            if self.path == "/stats":
                spent = {"cpu_s": time.process_time(), "items": batches.items}
                return self._answer({**spent, "failed": 0, "pids": []})
            knob = {"name": "batch_size", "values": SIZES, "default": SIZES[0], "role": "batch"}
            about = {"name": "first-hour", "version": "1", "knobs": [knob]}
            return self._answer({**about, "setting": {"batch_size": batches.size}})

        def do_PUT(self) -> None:
            batches.size = json.loads(self._body())["batch_size"]
            self._answer({"setting": {"batch_size": batches.size}})

        def do_POST(self) -> None:
            self._body()
            batches.infer()
            self._answer({"label": 0})

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))

        def _answer(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            return

    return Routes


def on_cpu(size: int) -> None:
    """Run a batch on the CPU."""
    for _ in range(size + FIXED):
        sum(number * number for number in range(TERMS))


def on_gpu() -> Callable[[int], None]:
    """Return what runs a batch on the first GPU of CUDA_VISIBLE_DEVICES. Raises NoCuda."""
    cuda = Cuda()

    def work(size: int) -> None:
        cuda.enter()
        cuda.run(COMPUTE, BLOCKS_AN_ITEM * size)

    return work


def main(device: str) -> None:
    """Serve until killed; the first line of the output has the address, or the reason for none."""
    try:
        batches = Batches(on_gpu() if device.startswith("nvidia:") else on_cpu)
    except NoCuda as error:
        print(json.dumps({"why": str(error)}), flush=True)
        return
    threading.Thread(target=batches.run, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(batches))
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}), flush=True)
    server.serve_forever()
