"""Answers to polls: valid until there is news of the device, or a new revision or trial of its study.

Devices that wait for orders are woken by news instead of polling.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tuner.core import Study, setting_key
from tuner.wire import HoldOrder, Poll, Release

Wake = Callable[[], None]
PollKey = tuple[object, ...]
T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Answered:
    """The last assignment of a device, valid until news or another poll."""

    mark: int
    key: PollKey
    until: float
    answer: HoldOrder | Release

    def holds_for(self, mark: int, key: PollKey, now: float) -> bool:
        """Return whether the answer is still valid, without reading the store."""
        return (self.mark, self.key) == (mark, key) and now < self.until


def poll_key(poll: Poll) -> PollKey:
    """Return the part of a poll that a hold or release depends on."""
    held = poll.applied
    applied = setting_key(held.setting), held.level, held.study, held.revision
    return poll.agent, poll.holding, poll.revision, poll.unable, *applied


class Derived(Generic[T]):
    """Keep the latest value of each study; recompute it at another revision or after a new trial.

    Call `get` only if all trials have ended. `trials` is their number, read before that was checked.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, int], T]] = {}

    def get(self, study: Study, trials: int, compute: Callable[[], T]) -> T:
        """Return the value at the study's revision and number of trials."""
        at, cached = (study.revision, trials), self._kept.get(study.id)
        if cached is None or cached[0] != at:
            cached = self._kept[study.id] = at, compute()
        return cached[1]

    def latest(self, study: str) -> T | None:
        """Return the last computed value; None before the first."""
        cached = self._kept.get(study)
        return None if cached is None else cached[1]
