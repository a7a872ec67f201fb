"""The actuator as an agent sees it: one device's knobs behind a Unix socket."""

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
from agents.actuator_client.offered import Choose, granted_knobs, kind_of
from tuner.core import (
    ActuationError,
    Clock,
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
"""The file beside the socket by which agents learn to release the devices' drivers."""
REST_S = 86400.0
LONGEST_TRIAL_S = 3600.0
"""A trial without activity for this long is no longer renewed: its agent's loop is stuck."""
TRIALS_HAVE_NAMES = 3
"""The first protocol of the actuator that takes a trial's name."""
TRIAL: ContextVar[str] = ContextVar("trial", default="")
"""What the trial that a thread is at is called, empty where it is at none."""

NOT_GRANTED = "not granted in actuator.toml, or the driver refused it; see the actuator's log"


@contextmanager
def named(trial: str) -> Iterator[None]:
    """Have the actuator log what this thread sets within the block under a trial's name."""
    before = TRIAL.set(trial)
    try:
        yield
    finally:
        TRIAL.reset(before)


@dataclass(frozen=True, slots=True)
class HeldSetting:
    """What the actuator was instructed to hold, and until when on the host's clock.

    `rest` is that of a member of a budget while nothing is tried or held.
    """

    setting: Mapping[str, Value | None]
    until: float
    rest: bool = False


class RemoteKnobs:
    """One device's Actuator and Tenure. Trials and holds are kept alive in the background.

    `cannot` says why it has no knobs where the device did not answer, else it is empty; `without` why the
    driver leaves out each knob that it cannot set; `throttled` what a
    cap of the kernel held below what we set when we last renewed it; `applied` is our last setting in
    force, empty while there is none. For a knob that cannot be read, or that had a value for each of its
    clock domains, the space's default represents its original: it travels as null, and the actuator
    restores it.
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
        self.cannot = self.throttled = ""
        self.applied: Setting = {}
        now: Mapping[str, Any] = {"found": {}}
        try:
            now = line.ask("read", device=self.uuid)
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
        """Return what is in force. Raises ActuationError."""
        values = self._line.ask("read", device=self.uuid)["values"]
        default = self.space.default
        unoffered = {None, *self._unoffered.values()}
        return {k: default[k] if values.get(k) in unoffered else values[k] for k in default}

    @property
    def waiting(self) -> int:
        """How many files are restored once their CPU is online; 0 where the actuator does not tell."""
        with suppress(TuningError):
            return len(self._line.ask("read", device=self.uuid).get("waiting", ()))
        return 0

    def apply(self, setting: Setting) -> None:
        """Lease the device and set the named knobs as a trial, kept alive until hold or release.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space, or not granted.
            DeviceBusy: another agent has the device.
            ActuationError: it is not in force; the device fell back to its hold or original.
        """
        for name, value in setting.items():
            self.space.knob(name).index(value)
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
            except TuningError:
                self._trial_from = None
                raise
            self.applied = dict(setting)
        self._keep()

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Keep a setting in force, also for the actuator's grace without us. Raises ActuationError."""
        self._space_restarts(setting)
        with self._lock:
            self._hold(setting, valid_for_s)
        self._keep()

    def _space_restarts(self, setting: Setting) -> None:
        """Wait where a change would restart a service too soon after the last one: it would be refused."""
        if self._min_restart_s and setting != self.applied:
            self._closed.wait(
                max(0.0, self._restarted_at + self._min_restart_s - self._clock.monotonic())
            )
            self._restarted_at = self._clock.monotonic()

    def rest(self) -> Setting | None:
        """Have a member at its original within its caps while nothing is tried or held, also without us.

        Returns what is in force by that, None where another setting is. Raises ActuationError.
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
        """Have what is in force written once more: a lock may be lost. Raises ActuationError."""
        with self._lock:
            if self._held is not None and self._trial_from is None:
                self._ask_hold(self._held)
            elif self._trial_from is not None:
                self._line.ask("apply", device=self.uuid, setting=self._wire(self._tried))

    def leave(self, knob: str, why: str) -> None:
        """Leave a knob to another program that sets it; the device is paused. Raises ActuationError."""
        with self._lock:
            self._trial_from, self._held = None, None
            self._line.ask("leave", device=self.uuid, knob=knob, why=why)

    def conflict(self) -> str:
        """Return what the actuator has against what is in force, empty where it has nothing."""
        self.beat()
        with self._lock:
            return self._wrong

    def close(self) -> None:
        """End the connection: a trial ends at once, a hold after the actuator's grace."""
        self._closed.set()
        if self._keeper is not None:
            self._keeper.join()
        self._line.close()

    def beat(self) -> None:
        """Keep alive what is in force; a hold that the actuator lost is put in force again."""
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
            except TuningError as error:
                self._trial_from = None
                if str(error) != self._wrong:
                    self._wrong = str(error)
                    log.warning("event=lease_lost device=%s why=%r", self.uuid, self._wrong)
                if self._held is not None:
                    with suppress(TuningError):
                        self._ask_hold(self._held)

    def _ask_hold(self, held: HeldSetting) -> HeldSetting:
        self._line.ask(
            "hold",
            device=self.uuid,
            setting=dict(held.setting),
            valid_for_s=held.until - self._clock.monotonic(),
        )
        return held

    def _keep(self) -> None:
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._work, name="actuator", daemon=True)
            self._keeper.start()

    def _work(self) -> None:
        while not self._closed.wait(self._beat_s):
            self.beat()

    def _wire(self, setting: Setting) -> dict[str, Value | None]:
        default, capped = self.space.default, self.caps.at_most()
        free = {k for k in self._unoffered if k in setting and k not in capped}
        return {k: None if k in free and v == default[k] else v for k, v in setting.items()}


def actuator_socket(root: Path) -> Path:
    """Return where the actuator listens: $JOULETUNE_ACTUATOR, else its usual place under `root`."""
    return Path(os.environ.get("JOULETUNE_ACTUATOR", root / SOCKET.relative_to("/")))


def open_remote(
    path: Path,
    uuid: str,
    clock: Clock,
    choose: Choose = lambda _, values, __: values,
    roles: Mapping[str, Role] = MappingProxyType({}),
    ceilings: Mapping[str, float] = MappingProxyType({}),
) -> RemoteKnobs:
    """Open a device of the actuator that listens at `path`; `choose` may leave values untried.

    `ceilings` has the knobs of which nothing higher takes effect: they end there, and an original value
    above counts as that. `roles` says what the knobs do, which root need not know; `cpu.max_mhz.4` does
    what `cpu.max_mhz` does.

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
    """Return a device behind the actuator, None where it is not there, and which names it cannot set."""
    try:
        remote = open_remote(path, uuid, clock, choose, roles, ceilings)
    except (ActuationError, NotFound) as error:
        return None, dict.fromkeys(names, f"measured only: {error.message}")
    kinds = {kind_of(knob.name) for knob in remote.space.knobs}
    why = remote.cannot or NOT_GRANTED
    return remote, {name: why for name in names if name not in kinds}
