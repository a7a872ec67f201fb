"""The escape within a trial: the baseline serves a burst, and the setting is in force otherwise.

A setting is tried as it is held: while unusually many requests wait, the baseline is in force. A rate shows
a burst after seconds, the queue immediately. The usual queue is learned while the baseline is in force for
another reason than a burst, so that an operator need not set a limit for each service.
"""

from __future__ import annotations

import math

from agents.target.side import SignalSample
from agents.target.target import Target
from tuner.core import Clock, Conflict, Setting, setting_key

WAITING = "waiting"
INSIDE = (("requests_in_system",), (WAITING, "decoding_requests"))
"""Signals whose sum is the number of requests in a service: the first of these that are all reported."""
REQUESTS = frozenset({WAITING, *(name for names in INSIDE for name in names)})
"""Signals that count requests waiting or in progress."""
LOOK_S = 0.5

SELDOM = 0.95
"""The usual queue is not exceeded for this share of the time. Our choice, like the values below."""
LEAST = 2
"""The least usual queue: a request waits for a moment before it is served."""
SERVED = 0.85
"""A queue is served once the number of requests in the service falls to this share of its maximum."""
BURST_S = 60.0
"""A queue that lasts more seconds at the baseline is usual there."""
LEARNT_S = 600.0
"""Before this many seconds of readings at the baseline the usual queue is `LEAST`."""
FORGET_S = 86_400.0
"""Time constant in s of the weights of past readings."""


class WaitingQueue:
    """Track the requests that wait; times in seconds. `long` is whether they are unusually many."""

    def __init__(self) -> None:
        self.long = False
        self._at = self._began = -math.inf
        self._most = 0.0
        self._lasted: dict[int, float] = {}

    def see(self, now: float, waiting: float, inside: float, *, baseline: bool) -> None:
        """Record the requests that wait and those in the service; `baseline`: whether it is in force."""
        seconds, self._at = min(1.0, max(0.0, now - self._at)), now
        if baseline and not (self.long and now - self._began < BURST_S):
            self._learn(math.ceil(waiting), seconds)
        if waiting > self.usual:
            self._began = self._began if self.long else now
            self.long, self._most = True, max(self._most, inside)
        elif inside <= SERVED * self._most or now - self._began >= BURST_S:
            self.long, self._most = False, 0.0

    @property
    def usual(self) -> int:
        """The usual number of waiting requests; more are a queue."""
        total, left = math.fsum(self._lasted.values()), 0.0
        if total < LEARNT_S:
            return LEAST
        for count in sorted(self._lasted, reverse=True):
            left += self._lasted[count]
            if left > (1.0 - SELDOM) * total:
                return max(LEAST, count)
        return LEAST

    def _learn(self, waiting: int, seconds: float) -> None:
        """Add `seconds` with this many waiting requests; older seconds decay."""
        keep = math.exp(-seconds / FORGET_S)
        self._lasted = {count: lasted * keep for count, lasted in self._lasted.items()}
        self._lasted[waiting] = self._lasted.get(waiting, 0.0) + seconds


class Escape:
    """Apply the baseline while unusually many requests wait, and the setting afterwards.

    It does nothing without the signal `waiting`, and where a change would restart the workload.
    """

    def __init__(
        self, target: Target, clock: Clock, queue: WaitingQueue, setting: Setting, baseline: Setting
    ) -> None:
        changed = [k for k in target.space.knobs if setting.get(k.name) != baseline.get(k.name)]
        restarts = any(k.cost.restart for k in changed)
        self._on = WAITING in target.signals and bool(baseline) and not restarts
        self._target, self._clock, self._queue = target, clock, queue
        self._setting, self._baseline = setting, baseline
        self._at = clock.monotonic()
        self._last = self._samples() if self._on else {}
        self._escaped = False

    def look(self) -> None:
        """Look at the queue every `LOOK_S` seconds. Raises as `read` of the signals, and as `_apply`."""
        now = self._clock.monotonic()
        seconds = now - self._at
        if not self._on or seconds < LOOK_S:
            return
        before, self._last, self._at = self._last, self._samples(), now
        shown = {name: present(before[name], self._last[name], seconds) for name in before}
        waiting = shown[WAITING]
        sums = (sum(shown[n] for n in names) for names in INSIDE if shown.keys() >= {*names})
        at_baseline = self._escaped or setting_key(self._setting) == setting_key(self._baseline)
        self._queue.see(now, waiting, next(sums, waiting), baseline=at_baseline)
        if self._queue.long != self._escaped:
            self._apply(self._queue.long)

    def end(self) -> None:
        """Apply the setting again, so that it is in force at the end of its window."""
        if self._escaped:
            self._apply(False)

    def _apply(self, escaped: bool) -> None:
        """Apply the baseline, or the setting again.

        Raises:
            Conflict: the setting in force was not the one that this window had applied.
        """
        applied, now = self._baseline if self._escaped else self._setting, self._target.read()
        wrong = [f"{k} became {now.get(k)!r}" for k, v in applied.items() if now.get(k) != v]
        objections = self._target.conflicts()
        if objections or (wrong and not self._target.caps.lowered(applied, now)):
            raise Conflict(
                "; ".join(objections or wrong), hint="the window does not count; it is tried again"
            )
        self._escaped = escaped
        self._target.apply(self._baseline if escaped else self._setting)

    def _samples(self) -> dict[str, SignalSample]:
        """Return the present samples of the signals that count requests waiting or in progress."""
        return {n: live.read() for n, live in self._target.signals.items() if n in REQUESTS}


def present(before: SignalSample, now: SignalSample, seconds: float) -> float:
    """Return a signal's present value, else its mean between two readings, 0 if they do not give one."""
    if now.present is not None:
        return now.present
    if now.integral is None or before.integral is None or now.incarnation != before.incarnation:
        return 0.0
    return max(0.0, now.integral - before.integral) / seconds
