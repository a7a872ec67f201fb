"""One device of the actuator as an agent uses it: knobs over a Unix socket."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agents.actuator_client.caps import DeviceCaps
from agents.actuator_client.line import ActuatorClient
from agents.actuator_client.offered import Choose, granted_knobs, kind_of, without
from tuner.core import (
    ActuationError,
    Clock,
    KnobRefused,
    NotFound,
    Role,
    Setting,
    Space,
    TuningError,
    Value,
)

log = logging.getLogger(__name__)

SOCKET = Path("/run/jouletune/actuator.sock")
DETACHED = "detached"
"""The file beside the socket that asks agents to release the devices' drivers."""
REST_S = 86400.0
LONGEST_TRIAL_S = 3600.0
"""A trial without activity for this many seconds is not renewed: its agent's loop hangs."""
TRIALS_HAVE_NAMES = 3
"""The first protocol version of the actuator that accepts a trial's name."""
TRIAL: ContextVar[str] = ContextVar("trial", default="")
"""The name of the trial that this thread runs; empty outside a trial."""

NOT_GRANTED = "not granted in actuator.toml, or the driver refused it; see the actuator's log"


@contextmanager
def named(trial: str) -> Iterator[None]:
    """Have the actuator log this thread's changes within the block under a trial's name."""
    before = TRIAL.set(trial)
    try:
        yield
    finally:
        TRIAL.reset(before)


@dataclass(frozen=True, slots=True)
class HeldSetting:
    """The setting that the actuator holds for us, and its end on the host's clock.

    `rest` marks the resting setting of a member of a budget, without a trial or a hold.
    """

    setting: Mapping[str, Value | None]
    until: float
    rest: bool = False


class RemoteKnobs:
    """One device's Actuator and Tenure. Trials and holds are kept alive in the background.

    - `cannot` is the reason that it has no knobs, empty if the device answered; - `without` has the
    driver's reason for each knob that it leaves out; - `throttled` has the kernel's caps below our values
    at the last renewal; - `applied` is our last setting in force, empty if none is; - `job` is the batch
    job that root leased the device to, by the last answer, empty if none is: our hold waits below it;
    - `refused` has the device's error for each knob that takes no value.

    Some knobs cannot be read, or had different values in their clock domains. For those the space's
    default represents the original: it is sent as null, and the actuator restores the original.
    """

    def __init__(
        self,
        line: ActuatorClient,
        about: Mapping[str, Any],
        times: Mapping[str, Any],
        clock: Clock,
        choose: Choose,
        roles: Mapping[str, Role],
        ceilings: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.uuid: str = about["uuid"]
        self.board: str = about["board"]
        self.without: Mapping[str, str] = dict(about.get("without") or ())
        self.cannot = self.throttled = self.job = ""
        self.applied: Setting = {}
        self.refused: dict[str, str] = {}
        now: Mapping[str, Any] = {"found": {}}
        try:
            now = line.ask("read", device=self.uuid)
            self.job = str(now.get("job", ""))
        except TuningError as error:
            self.cannot = str(error)
        originals = now["found"]
        self.space = Space(tuple(granted_knobs(about, originals, choose, roles, ceilings)))
        self.caps = DeviceCaps(line, {**about, **now}, self.space, clock)
        self._unoffered = {k: v for k, v in originals.items() if v not in self.space.knob(k).values}
        self._line = line
        self._min_restart_s = (
            float(times.get("min_restart_s", 0.0)) if about.get("restarts") else 0.0
        )
        self._restarted_at = -inf
        self._takes_names = times["protocol"] >= TRIALS_HAVE_NAMES
        self._lease_s = float(times["lease_s"])
        self._beat_s = min(self._lease_s, float(times["agent_grace_s"])) / 3.0
        self._clock = clock
        self._lock = threading.Lock()
        self._trial_from: float | None = None
        self._tried: Setting = {}
        self._held: HeldSetting | None = None
        self._wrong = ""
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None

    def read(self) -> Setting:
        """Return the setting in force. Raises ActuationError."""
        answer = self._line.ask("read", device=self.uuid)
        values, self.job = answer["values"], str(answer.get("job", ""))
        default = self.space.default
        unoffered = {None, *self._unoffered.values()}
        return {k: default[k] if values.get(k) in unoffered else values[k] for k in default}

    @property
    def waiting(self) -> int:
        """Return the number of files to restore once their CPU is online; 0 without an answer."""
        with suppress(TuningError):
            return len(self._line.ask("read", device=self.uuid).get("waiting", ()))
        return 0

    def apply(self, setting: Setting) -> None:
        """Lease the device and set the named knobs as a trial, kept alive until hold or release.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space, or not granted.
            DeviceBusy: another agent has the device.
            KnobRefused: the device refuses a knob, which is no longer offered.
            ActuationError: the setting is not in force; the device fell back to its hold or original.
        """
        self.space.check_named(setting)
        if not setting:
            return
        self._space_restarts(setting)
        with self._lock:
            trial = {"trial": TRIAL.get()} if self._takes_names else {}
            self._line.ask("acquire", device=self.uuid, lease_s=self._lease_s, **trial)
            self._trial_from = self._clock.monotonic()
            self._wrong, self.applied = "", {}
            try:
                self._line.ask("apply", device=self.uuid, setting=self._wire(setting))
                self._tried = setting
            except TuningError as error:
                self._trial_from = None
                if isinstance(error, KnobRefused) and error.knob:
                    self.refused[error.knob] = error.message
                raise
            self.applied = dict(setting)
        self._keep()

    def left(self) -> tuple[Space, Mapping[str, str]]:
        """Return the space still offered, and the device's error for each knob that it refuses."""
        return without(self.space, self.refused), dict(self.refused)

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Hold a setting, also for the actuator's grace after this agent ends. Raises ActuationError."""
        self._space_restarts(setting)
        with self._lock:
            self._hold(setting, valid_for_s)
        self._keep()

    def _space_restarts(self, setting: Setting) -> None:
        """Wait until another restart of the service is permitted; an earlier one would be refused."""
        if self._min_restart_s and setting != self.applied:
            self._closed.wait(
                max(0.0, self._restarted_at + self._min_restart_s - self._clock.monotonic())
            )
            self._restarted_at = self._clock.monotonic()

    def rest(self) -> Setting | None:
        """Keep a member at its original within its caps unless a trial or a hold is in force.

        The actuator holds it, so it outlives this agent. Returns the setting in force, None if it is
        another one. Raises ActuationError.
        """
        with self._lock:
            if self._trial_from is not None or (self._held is not None and not self._held.rest):
                return None
            if not self.caps.at_most():
                if self._held is not None:
                    self._line.ask("release", device=self.uuid)
                    self._held, self.applied = None, {}
                return None
            resting = self.caps.resting
            if self._held is None or self._held.setting != resting:
                self._hold(resting, REST_S, rest=True)
        self._keep()
        return resting

    def _hold(self, setting: Setting, valid_for_s: float, *, rest: bool = False) -> None:
        """Replace the trial or the hold in force by a new hold. Raises ActuationError."""
        until = self._clock.monotonic() + valid_for_s
        self._trial_from, self._held, self._wrong, self.applied = None, None, "", {}
        self._held = self._ask_hold(HeldSetting(self._wire(setting), until, rest))
        self.applied = dict(setting)

    def release(self) -> None:
        """Restore the device to its original and release it. Raises ActuationError."""
        with self._lock:
            self._trial_from, self._held, self.applied = None, None, {}
            self._line.ask("release", device=self.uuid)

    def again(self) -> None:
        """Write the setting in force once more: a clock lock may be lost. Raises ActuationError."""
        with self._lock:
            if self._held is not None and self._trial_from is None:
                self._ask_hold(self._held)
            elif self._trial_from is not None:
                self._line.ask("apply", device=self.uuid, setting=self._wire(self._tried))

    def leave(self, knob: str, why: str) -> None:
        """Leave a knob to the other program that sets it; the device is paused. Raises ActuationError."""
        with self._lock:
            self._trial_from, self._held = None, None
            self._line.ask("leave", device=self.uuid, knob=knob, why=why)

    def conflict(self) -> str:
        """Return the actuator's error about the setting in force; empty if it has none."""
        self.beat()
        with self._lock:
            return self._wrong

    def close(self) -> None:
        """Close the connection: a trial ends at once, a hold after the actuator's grace."""
        self._closed.set()
        if self._keeper is not None:
            self._keeper.join()
        self._line.close()

    def beat(self) -> None:
        """Renew the trial or the hold; a hold that the actuator lost is put in force again."""
        with self._lock:
            now = self._clock.monotonic()
            if self._trial_from is not None and now - self._trial_from > LONGEST_TRIAL_S:
                self._trial_from = None
            if self._held is not None and now >= self._held.until:
                self._held = None
            if self._trial_from is None and self._held is None:
                return
            try:
                reply = self._line.ask("renew", device=self.uuid, lease_s=self._lease_s)
                self._wrong, self.throttled = "", str(reply.get("throttled", ""))
                self.job = str(reply.get("job", ""))
            except TuningError as error:
                self._trial_from = None
                if str(error) != self._wrong:
                    self._wrong = str(error)
                    log.warning("event=lease_lost device=%s why=%r", self.uuid, self._wrong)
                if self._held is not None:
                    with suppress(TuningError):
                        self._ask_hold(self._held)

    def _ask_hold(self, held: HeldSetting) -> HeldSetting:
        """Send a hold to the actuator for its remaining time, and return it."""
        self._line.ask(
            "hold",
            device=self.uuid,
            setting=dict(held.setting),
            valid_for_s=held.until - self._clock.monotonic(),
        )
        return held

    def _keep(self) -> None:
        """Start the thread that renews, once."""
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._work, name="actuator", daemon=True)
            self._keeper.start()

    def _work(self) -> None:
        """Renew until closed."""
        while not self._closed.wait(self._beat_s):
            self.beat()

    def _wire(self, setting: Setting) -> dict[str, Value | None]:
        """Return a setting as sent: None for a default that replaces an original outside the space."""
        default, capped = self.space.default, self.caps.at_most()
        free = {k for k in self._unoffered if k in setting and k not in capped}
        return {k: None if k in free and v == default[k] else v for k, v in setting.items()}


def actuator_socket(root: Path) -> Path:
    """Return the actuator's socket: $JOULETUNE_ACTUATOR, else its usual path under `root`."""
    return Path(os.environ.get("JOULETUNE_ACTUATOR", root / SOCKET.relative_to("/")))


def open_remote(
    path: Path,
    uuid: str,
    clock: Clock,
    choose: Choose = lambda _, values, __: values,
    roles: Mapping[str, Role] = MappingProxyType({}),
    ceilings: Mapping[str, float] = MappingProxyType({}),
) -> RemoteKnobs:
    """Open a device of the actuator that listens at `path`; `choose` may exclude values from trials.

    A knob in `ceilings` ends at that value, because no higher one takes effect; a higher original counts
    as that value. `roles` has the knobs' roles, which root does not need; `cpu.max_mhz.4` has the role of
    `cpu.max_mhz`.

    Raises:
        ActuationError: the actuator does not answer.
        NotFound: it has no such device.
    """
    line = ActuatorClient(path)
    answer = line.ask("capabilities")
    for about in answer["devices"]:
        if about["uuid"] == uuid:
            return RemoteKnobs(line, about, answer, clock, choose, roles, ceilings)
    line.close()
    uuids = ", ".join(c["uuid"] for c in answer["devices"]) or "none"
    raise NotFound(f"the actuator has no device {uuid!r}", hint=f"its devices: {uuids}")


def reached(
    path: Path,
    uuid: str,
    clock: Clock,
    names: Iterable[str],
    choose: Choose,
    roles: Mapping[str, Role],
    ceilings: Mapping[str, float] = MappingProxyType({}),
) -> tuple[RemoteKnobs | None, Mapping[str, str]]:
    """Return a device of the actuator, None if absent, and the reason for each name that it cannot set."""
    try:
        remote = open_remote(path, uuid, clock, choose, roles, ceilings)
    except (ActuationError, NotFound) as error:
        return None, dict.fromkeys(names, f"measured only: {error.message}")
    kinds = {kind_of(knob.name) for knob in remote.space.knobs}
    why = remote.cannot or NOT_GRANTED
    return remote, {name: why for name in names if name not in kinds}
