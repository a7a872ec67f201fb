"""A torch classifier that follows the workload contract, on the GPU if there is one.

One thread runs batches without a pause; a request is answered at the end of the next whole batch. The
only knob is the batch size, which needs no privilege.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from agents.workloads.reference.resnet18 import classifier

SIDE = 96
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Batches:
    """The endless batches, and their totals."""

    def __init__(self, device: str, width: int) -> None:
        self._device = device
        self._model = classifier(0, width).to(device)
        self._ended = threading.Condition()
        self.batch_size = 16
        self.items = 0
        self._count = 0
        self._in_force = 0

    def run(self) -> None:
        """Run batches forever."""
        pictures = torch.randn(max(BATCH_SIZES), 3, SIDE, SIDE, device=self._device)
        with torch.inference_mode():
            while True:
                size = self.batch_size
                labels = self._model(pictures[:size]).argmax(dim=1)
                labels.cpu()
                with self._ended:
                    self.items += size
                    self._count += 1
                    self._in_force = size
                    self._ended.notify_all()

    def next(self) -> None:
        """Wait for the end of the batch that begins after the present one."""
        with self._ended:
            wanted = self._count + 2
            self._ended.wait_for(lambda: self._count >= wanted)

    def change(self, size: int) -> None:
        """Set the batch size, and return once it is in force."""
        self.batch_size = size
        with self._ended:
            self._ended.wait_for(lambda: self._in_force == size)


def handler(batches: Batches) -> type[BaseHTTPRequestHandler]:
    """Return the routes of the contract over the batches."""

    class Routes(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/stats":
                cpu_s = time.process_time()
                self._answer({"cpu_s": cpu_s, "items": batches.items, "failed": 0, "pids": []})
                return
            knob = {"name": "batch_size", "values": BATCH_SIZES, "default": 16}
            about = {"name": "torch-classifier", "version": torch.__version__, "knobs": [knob]}
            self._answer({**about, "setting": {"batch_size": batches.batch_size}})

        def do_PUT(self) -> None:
            batches.change(json.loads(self._body())["batch_size"])
            self._answer({"setting": {"batch_size": batches.batch_size}})

        def do_POST(self) -> None:
            self._body()
            batches.next()
            self._answer({"label": 0})

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))

        def _answer(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Routes


def main() -> None:
    """Serve until killed; the first line of the output is the address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    batches = Batches(usual, parser.parse_args().width)
    threading.Thread(target=batches.run, daemon=True).start()
    batches.next()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(batches))
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}", "on": usual}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
