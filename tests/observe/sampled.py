"""An engine's work by the kernel and by its own counters, read beside `observe`."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psutil

EVERY_S = 1.0
"""Seconds between readings: each costs a busy engine's server a good part of a tenth of a second."""

Totals = Mapping[str, float]
"""What an engine has done since its start, by name."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and all below it, by the kernel."""
    whole = psutil.Process(pid)
    times = [one.cpu_times() for one in (whole, *whole.children(recursive=True))]
    return sum(float(time.user + time.system) for time in times)


@dataclass
class Sampler:
    """Reads totals with the wall clock's time until it is stopped."""

    totals: Callable[[], Totals]
    read: list[tuple[float, Totals]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        stopped = False
        while not stopped:
            stopped = self.stop.wait(EVERY_S)
            totals = self.totals()
            # A server that is busy answers late, with the totals of then.
            self.read.append((time.time(), totals))

    def within(self, window: Mapping[str, Any]) -> Totals:
        """Return the growth of each total in a window of `observe`."""
        began = datetime.fromisoformat(window["started_at"]).timestamp()
        first, last = self._at(began), self._at(began + window["seconds"])
        return {name: last[name] - first[name] for name in first}

    def _at(self, moment: float) -> Totals:
        """Return the totals at a moment, on the straight line between the readings around it."""
        after = bisect_left([at for at, _ in self.read], moment)
        (began, a), (ended, b) = self.read[after - 1], self.read[after]
        part = (moment - began) / (ended - began)
        return {name: a[name] + part * (b[name] - a[name]) for name in a}


@contextmanager
def sampled(totals: Callable[[], Totals]) -> Iterator[Sampler]:
    """Read totals within the block."""
    sampler = Sampler(totals)
    thread = threading.Thread(target=sampler.run)
    thread.start()
    try:
        yield sampler
    finally:
        sampler.stop.set()
        thread.join()
