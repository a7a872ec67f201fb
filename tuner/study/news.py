"""Wakes devices that wait for orders when new ones may exist, instead of polling."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable

Wake = Callable[[], None]


class News:
    """Wake waiting devices, from any thread, when their orders may have changed.

    News only says that a look is worthwhile. News during a look is not lost, as a look begins with
    `mark`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._broadcasts = 0
        self._waiting: defaultdict[str, list[Wake]] = defaultdict(list)

    def mark(self, device: str) -> int:
        """Return a mark of a device's news: taken before a look, passed to `wait` after it."""
        with self._lock:
            return self._counts[device] + self._broadcasts

    def wait(self, device: str, mark: int, wake: Wake) -> Wake:
        """Call `wake` at the next news after a mark; return the function that cancels this."""
        with self._lock:
            late = self._counts[device] + self._broadcasts != mark
            if not late:
                self._waiting[device].append(wake)
        if late:
            wake()

        def end() -> None:
            with self._lock:
                waiting = self._waiting.get(device, [])
                if wake in waiting:
                    waiting.remove(wake)
                if not waiting:
                    self._waiting.pop(device, None)

        return end

    def tell(self, devices: Iterable[str]) -> None:
        """Wake the polls of these devices."""
        with self._lock:
            named = list(devices)
            for device in named:
                self._counts[device] += 1
            woken = [wake for device in named for wake in self._waiting.pop(device, [])]
        for wake in woken:
            wake()

    def tell_all(self) -> None:
        """Wake all polls."""
        with self._lock:
            self._broadcasts += 1
            woken = [wake for waiting in self._waiting.values() for wake in waiting]
            self._waiting.clear()
        for wake in woken:
            wake()
