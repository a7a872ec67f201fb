"""A stand-in for an accelerator: it runs passes of an inference and steps of a fine-tuning in order.

A running step is not interrupted: a request waits for its end, also while the job is paused. The same
holds for a time-shared device, like most edge devices (PolyThrottle, arXiv 2310.19991, section 6).
Beside a training, p99 latencies of 2.9 times were measured on GPUs (Tally, arXiv 2410.07381). The
passes are real: one thread of torch is the device, and the CPU's scheduler does not share it.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

from agents.workloads.reference.resnet18 import CLASSES, classifier

PIXELS, WIDTH, BATCH, TUNED = 96, 32, 2, 5
"""The image size in pixels, the network's width, the images per step, and the number of tuned last
layers."""

Pass = tuple[Callable[[], None], threading.Event]


class Accelerator:
    """Runs the requested passes one at a time, in order."""

    def __init__(self) -> None:
        self._passes: queue.SimpleQueue[Pass] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def run(self, work: Callable[[], None]) -> None:
        """Run a pass, and return at its end."""
        ended = threading.Event()
        self._passes.put((work, ended))
        ended.wait()

    def _run(self) -> None:
        while True:
            work, ended = self._passes.get()
            work()
            ended.set()


class Networks:
    """A network that answers requests, and a second one whose last layers are fine-tuned."""

    def __init__(self) -> None:
        self._answers, self._tuned = classifier(0, WIDTH), classifier(0, WIDTH)
        layers = list(self._tuned.requires_grad_(False).children())
        last = torch.nn.Sequential(*layers[-TUNED:]).requires_grad_().train()
        self._optimiser = torch.optim.SGD(last.parameters(), lr=1e-3)
        self._made = torch.Generator().manual_seed(0)

    def infer(self) -> None:
        """Classify one image."""
        with torch.inference_mode():
            self._answers(torch.ones(1, 3, PIXELS, PIXELS))

    def step(self) -> None:
        """Fine-tune by one batch."""
        images = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=self._made)
        labels = torch.randint(CLASSES, (BATCH,), generator=self._made)
        self._optimiser.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(self._tuned(images), labels))
        self._optimiser.step()


class Handler(BaseHTTPRequestHandler):
    """`POST /infer` and `POST /step`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    accelerator: Accelerator
    networks: Networks

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.accelerator.run(self.networks.step if self.path == "/step" else self.networks.infer)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    Handler.accelerator, Handler.networks = Accelerator(), Networks()
    for warm in (Handler.networks.infer, Handler.networks.step) * 5:
        Handler.accelerator.run(warm)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    sys.stdout.close()
    server.serve_forever()
