"""Who waits for orders, and how they hear that there may be others: no polling in between."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable

Wake = Callable[[], None]


class News:
    """What may have changed a device's orders, instructed to those who wait for them, from any thread.

    It says that it is worth looking, not what there is to see: news during a look is not lost, as a look
    begins with `mark`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._broadcasts = 0
        self._waiting: defaultdict[str, list[Wake]] = defaultdict(list)

    def mark(self, device: str) -> int:
        """Return where the news of a device stands: taken before a look, given to `wait` after it."""
        with self._lock:
            return self._counts[device] + self._broadcasts

    def wait(self, device: str, mark: int, wake: Wake) -> Wake:
        """Have `wake` called at the next news after a mark; return what ends the waiting."""
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
        """Wake everybody."""
        with self._lock:
            self._broadcasts += 1
            woken = [wake for waiting in self._waiting.values() for wake in waiting]
            self._waiting.clear()
        for wake in woken:
            wake()
