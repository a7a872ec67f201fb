"""A real service on one core that works in rounds, each a padded batch; its knob is the rounds per second.

Models of a static shape are served like this. A round costs the same for one request as for `BATCH`, and no
round runs without a request: fewer rounds take less CPU time, serve fewer requests per second, and answer
later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

from jouletune_bench.llm import Request, ServedRequest, ServerCounters
from tuner.core import Cost, Knob, Setting, Space

KNOB = "rounds_per_s"
ROUNDS = (2, 4, 8)
BATCH = 24
WIDTH = 8
"""The size of the classifier: a round takes some milliseconds, so that other programs matter little."""
START_S, CHANGE_S = 120.0, 10.0


def serve(channel: Connection) -> None:
    """Serve in a separate process until the channel closes."""
    import torch

    from agents.workloads.reference.resnet18 import classifier

    torch.set_num_threads(1)
    model, inputs = classifier(0, WIDTH), torch.randn(BATCH, 3, 96, 96)
    waiting: deque[int] = deque()
    rate = float(ROUNDS[-1])
    with torch.inference_mode(), suppress(EOFError, BrokenPipeError, ConnectionResetError):
        model(inputs)
        channel.send("ready")
        due = time.monotonic()
        while True:
            due = max(due + 1.0 / rate, time.monotonic())
            while channel.poll(max(0.0, due - time.monotonic())):
                message = channel.recv()
                if isinstance(message, float):
                    due += 1.0 / message - 1.0 / rate
                    rate = message
                    channel.send(rate)
                else:
                    waiting.append(message)
            batch = [waiting.popleft() for _ in range(min(BATCH, len(waiting)))]
            if batch:
                model(inputs)
                channel.send(batch)


class RoundServer:
    """Server, actuator and clock in one object, in real time; the CPU seconds of its process are its
    joules.
    """

    def __init__(self, requests: Sequence[Request], seed: int) -> None:
        """Start the process, wait for it, and send the requests at their times."""
        self.space = Space((Knob(KNOB, ROUNDS, ROUNDS[-1], cost=Cost(seconds=0.1)),))
        self._set = dict(self.space.default)
        self._requests = requests
        self._lock = threading.Lock()
        self._done: list[ServedRequest] = []
        self._arrived = self._served = 0
        self._applied = threading.Event()
        context = get_context("spawn")
        self._channel, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        if not self._channel.poll(START_S) or self._channel.recv() != "ready":
            raise TimeoutError(f"the service did not start within {START_S:.0f} s")
        self._began, self._cpu_s = time.monotonic(), self._cpu()
        self._threads = [
            threading.Thread(target=one, daemon=True) for one in (self._send, self._receive)
        ]
        for each in self._threads:
            each.start()

    def _cpu(self) -> float:
        """Return the CPU seconds of the process, all threads (clock_getcpuclockid(3))."""
        return time.clock_gettime((~int(self._process.pid or 0) << 3) | 2)

    def _send(self) -> None:
        for number, request in enumerate(self._requests):
            self.sleep(request.arrival_s - self.monotonic())
            with self._lock, suppress(OSError):
                self._channel.send(number)
                self._arrived += 1

    def _receive(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                message = self._channel.recv()
                if isinstance(message, float):
                    self._applied.set()
                    continue
                now = self.monotonic()
                for number in message:
                    at = self._requests[number].arrival_s
                    self._done.append(ServedRequest(at, now - at, now - at, now - at))
                self._served += len(message)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._channel.close()

    def read(self) -> Setting:
        """Return the setting in force."""
        return dict(self._set)

    def apply(self, setting: Setting) -> None:
        """Set the rounds per second, and wait until the service has answered."""
        if not setting or setting[KNOB] == self._set[KNOB]:
            return
        self._applied.clear()
        with self._lock:
            self._channel.send(float(setting[KNOB]))
        if not self._applied.wait(CHANGE_S):
            raise TimeoutError(f"the service did not answer within {CHANGE_S:.0f} s")
        self._set = dict(setting)

    def monotonic(self) -> float:
        """Return the seconds since the first request was awaited."""
        return time.monotonic() - self._began

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(max(0.0, seconds))

    def take(self) -> list[ServedRequest]:
        """Return the requests answered since the last call."""
        count = len(self._done)
        done, self._done[:count] = self._done[:count], []
        return done

    def counters(self) -> ServerCounters:
        """Return the current counters."""
        now, cpu_s = self.monotonic(), self._cpu() - self._cpu_s
        inside = self._arrived - self._served
        return ServerCounters(
            now, cpu_s, now, cpu_s, self._arrived, self._served, self._served, cpu_s, 0.0, inside,
            0, 0.0, 0.0,
        )  # fmt: skip
