"""Parks the device of an idle engine: at its lowest core clock, from seconds without a request to the next.

An engine in memory keeps a GPU's clock up without any work: 45 W instead of 33 W on a V100
(sasha0552/nvidia-pstated, issue 6).

The first request loses at most the time from the last look without a request to the end of the change
back: it did not exist before that look, and it has the held clock after the change. This is measured at
each change back, so the limit needs no latency of the engine. A request that ends between two looks is not
noticed, and loses less than the time between them.
"""

from __future__ import annotations

import math
from collections import deque

from agents.target.escape import REQUESTS, WAITING, present
from agents.target.measured import WORKLOAD
from agents.target.side import SignalSample
from agents.target.target import SideSettings, Target, speed_change
from tuner.core import ActuationError, InvalidInput, Role, Setting

LOOK_S = 0.2
"""Seconds between looks while the device is parked."""
AGAIN_S = 1800.0
"""A parked setting is applied again after this time, before its guard ends a trial without activity."""
KEPT, SHARE = 40, 0.95
"""The limit applies to this quantile of the last delays."""


class Parking:
    """Decide when a device is parked: `after_s` seconds after the last request.

    It is not parked once the next request may lose more than `added_ms` milliseconds. Other times are
    monotonic, in seconds.

    Raises:
        InvalidInput: no signal of the workload counts requests in progress that are not our own.
    """

    def __init__(self, target: Target, after_s: float, added_ms: float) -> None:
        self._target, self._after_s, self._added_ms = target, after_s, added_ms
        self._signals = {n: live for n, live in target.signals.items() if n in REQUESTS}
        ours = any(live.signal.askable for live in self._signals.values())
        if ours or self._signals.keys() <= {WAITING}:  # a queue is empty while a request is served
            raise InvalidInput(
                "park_after_s needs a workload that counts the requests of others in progress",
                hint="leave it out, or name the engine's gauge of them in [signal] of its file: "
                'name = "requests_in_system" or "decoding_requests"',
            )
        self._last: tuple[float, dict[str, SignalSample]] | None = None
        self._idle_since = self._idle_at = math.inf
        self._parked_at = -math.inf
        self._change_s = 0.0
        self._added_s: deque[float] = deque(maxlen=KEPT)

    def reset(self) -> None:
        """Forget the time without requests: a trial or a window used the device."""
        self._last, self._idle_since = None, math.inf

    def is_idle(self, now: float) -> bool:
        """Return whether no request is present; `now` is the time before the look. Raises as `read`."""
        before, samples = self._last, {n: live.read() for n, live in self._signals.items()}
        self._last = now, samples
        if before is None or now <= before[0]:
            return False
        seconds = now - before[0]
        if any(present(before[1][n], sample, seconds) for n, sample in samples.items()):
            self._idle_since = math.inf
            return False
        self._idle_since, self._idle_at = min(self._idle_since, now), now
        return True

    def due(self, now: float, *, parked: bool) -> bool:
        """Return whether to park now, or to apply the parked setting again."""
        if parked:
            return now - self._parked_at >= AGAIN_S
        return now - self._idle_since >= self._after_s and not self.exceeded

    def parked(self, began: float, now: float) -> None:
        """Note a change to the parked setting: a request that arrives within it waits for its end."""
        self._parked_at, self._change_s = now, now - began

    def woken(self, now: float) -> float:
        """Note the change back; return the most seconds that the first request can have lost."""
        self._added_s.append(now - self._idle_at)
        return self._added_s[-1]

    @property
    def exceeded(self) -> str:
        """Return why the device is not parked any more: the limit would be broken. Empty if it is not."""
        delays = sorted(self._added_s)
        usual = delays[int(SHARE * len(delays))] if delays else LOOK_S
        most_ms = 1000.0 * max(usual, LOOK_S + self._change_s)
        if most_ms <= self._added_ms:
            return ""
        return f"the first request may lose {most_ms:.0f} ms; the limit is {self._added_ms:g} ms"

    def settings(self, held: Setting) -> SideSettings:
        """Return the settings of the devices that are slower at their lowest core clock, with that clock.

        Raises ActuationError if no device has a core clock.
        """
        lowest: dict[str, Setting] = {}
        for key, side in self._target.sides.items():
            clocks = {k.name: k.values[0] for k in side.offered.knobs if k.role is Role.CORE_CLOCK}
            if key != WORKLOAD and clocks and not side.restarts_workload:
                lowest[key] = {**{k.name: held[k.name] for k in side.space.knobs}, **clocks}
        if not lowest:
            raise ActuationError("no core clock can be set", hint="grant it in actuator.toml")
        spaces = {key: self._target.sides[key].space for key in lowest}
        return {k: one for k, one in lowest.items() if speed_change(spaces[k], held, one) < 0.0}
