"""What root does for agents: trial, hold, original; every ending falls back to the level below."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from agents.drivers import Value
from agents.grants import ActuatorConfig
from agents.hand import Hand
from agents.originals import Originals, Record, Touched
from agents.slots import (
    LONGEST_RETRY_S,
    RETRY_S,
    Hold,
    Peer,
    Slot,
    Wanted,
    among,
    differs,
    widening_first,
)
from tuner.errors import (
    ActuationError,
    Conflict,
    DeviceBusy,
    InvalidInput,
    NotFound,
    OutOfRange,
    TuningError,
    UnknownKnob,
)

log = logging.getLogger(__name__)

Monotonic = Callable[[], float]


class Actuator:
    """Serves agents' requests; used by one thread. `boot` names this start of the machine.

    Raises:
        DeviceLost: the drivers do not answer.
    """

    def __init__(
        self, config: ActuatorConfig, hand: Hand, originals: Originals, boot: str, now: Monotonic
    ) -> None:
        self._config = config
        self._hand = hand
        self._originals = originals
        self._boot = boot
        self._now = now
        self._slots: dict[str, Slot] = {}
        for device in hand.describe():
            self._slots[device.uuid] = Slot(device, config.granted(device.uuid))

    def grant(self) -> None:
        """Grant what the configuration says; before this, nothing is.

        Raises:
            ConfigError: a grant does not fit its device.
        """
        for uuid, slot in self._slots.items():
            slot.allowed = slot.terms.values(uuid, slot.device.ranges, slot.device.cannot)

    def replay(self) -> dict[str, str]:
        """Put every device back to what its journal says; return what did not go back, and why.

        A damaged journal leaves its device untouched. One of another boot, or of another load of the
        driver, is dropped: the hardware forgot what we did.
        """
        for uuid, slot in self._slots.items():
            try:
                slot.record = self._originals.get(uuid)
                if slot.record and slot.record.boot != self._boot:
                    log.warning("event=journal_dropped device=%s why='another boot'", uuid)
                    self._forget(slot)
            except TuningError as error:
                slot.paused = f"{error.message}; put {uuid} back by hand, delete that file, restart"
                log.error("event=journal_damaged device=%s why=%r", uuid, slot.paused)
                continue
            self._put_back(slot)
        left = {u: s.paused or s.trouble for u, s in self._slots.items() if s.paused or s.trouble}
        for name in self._originals.others(self._slots):
            log.error("event=device_missing journal=%s", name)
            left[name] = "its device is not there"
        return left

    def close(self) -> None:
        """Put every device back, whoever has it."""
        for slot in self._slots.values():
            self._end(slot, "the actuator stops")

    def status(self) -> str:
        """Return in one line how the devices are."""
        return ", ".join(f"{u}: {s.paused or s.trouble or s.level}" for u, s in self._slots.items())

    def tick(self) -> None:
        """End what is over, and try again what did not go back."""
        for slot in self._slots.values():
            now = self._now()
            if slot.trial_until is not None and now >= slot.trial_until:
                log.warning("event=trial_lapsed device=%s", slot.device.uuid)
                self._fall(slot)
            if slot.hold and now >= slot.hold.until:
                self._end(slot, "its time is over")
            if slot.hold and now >= slot.heard + self._config.agent_grace_s:
                self._end(slot, "its agent is gone")
            if slot.level == "original" and slot.record and now >= slot.retry_at:
                self._put_back(slot)

    def gone(self, peer: Peer) -> None:
        """Take note that a connection is gone: its trials end at once, its holds after the grace."""
        for slot in self._slots.values():
            if slot.owner == peer:
                slot.owner, slot.heard = None, self._now()
                if slot.trial_until is not None:
                    self._fall(slot)

    # The verbs

    def capabilities(self, peer: Peer) -> dict[str, Any]:
        """Return every device, what may be set on it, and what it was found at."""
        return {
            "protocol": 1,
            "lease_s": self._config.lease_s,
            "agent_grace_s": self._config.agent_grace_s,
            "devices": [self._capability(slot) for slot in self._slots.values()],
        }

    def read(self, peer: Peer, device: str) -> dict[str, Any]:
        """Return what is in force: what the hardware tells, else what we wrote; None is as found."""
        slot = self._slot(device, None)
        shown, _ = self._hand.read(device)
        return {
            "values": {k: slot.in_force(k, shown) for k in slot.allowed},
            "level": slot.level,
            "holder": slot.owner.who if slot.owner else "",
            "study": slot.hold.study if slot.hold else "",
            "revision": slot.hold.revision if slot.hold else 0,
            "paused": slot.paused,
            "trouble": slot.trouble,
        }

    def acquire(self, peer: Peer, device: str, lease_s: float) -> dict[str, Any]:
        """Give a device to this connection for a trial. Another's is refused, and says whose it is."""
        slot = self._slot(device, peer)
        if not 0.0 < lease_s <= self._config.lease_s:
            raise InvalidInput(f"lease_s must be over 0 and at most {self._config.lease_s:g}")
        self._take(slot, peer)
        slot.trial_until = self._now() + lease_s
        return {"lease_s": lease_s}

    def apply(self, peer: Peer, device: str, setting: Wanted) -> dict[str, Any]:
        """Write a setting under the trial's lease; a failure falls back to the level below."""
        slot = self._slot(device, peer)
        if slot.trial_until is None or slot.owner != peer:
            raise Conflict(f"{device} is not leased to you", hint="acquire it first")
        self._check(slot, setting)
        try:
            self._change(slot, setting)
        except TuningError:
            self._fall(slot)
            raise
        return self.read(peer, device)

    def renew(self, peer: Peer, device: str, lease_s: float) -> dict[str, Any]:
        """Keep a trial, or a hold, alive."""
        slot = self._slot(device, peer)
        if slot.owner != peer or slot.level == "original":
            raise Conflict(f"the lease of {device} is over: {slot.paused or 'it was not renewed'}")
        try:
            self._look(slot)
        except TuningError:
            self._end(slot, "it was changed from elsewhere, or lost")
            raise
        if slot.trial_until is not None:
            slot.trial_until = self._now() + min(lease_s, self._config.lease_s)
        return {"level": slot.level}

    def hold(
        self,
        peer: Peer,
        device: str,
        setting: Wanted,
        study: str,
        revision: int,
        valid_for_s: float,
    ) -> dict[str, Any]:
        """Put a confirmed setting in force for as long as it is valid and its agent lives."""
        slot = self._slot(device, peer)
        self._check(slot, setting)
        self._take(slot, peer)
        slot.trial_until = None
        slot.hold = Hold(setting, study, revision, self._now() + valid_for_s)
        try:
            self._change(slot, slot.whole(setting))
        except TuningError:
            self._end(slot, "it could not be put in force")
            raise
        return {"level": slot.level}

    def release(self, peer: Peer, device: str) -> dict[str, Any]:
        """Put a device back to its original. Raises ActuationError where it does not go back."""
        slot = self._slot(device, peer)
        self._end(slot, "its agent released it")
        if slot.record:
            raise ActuationError(f"{device} is not back at its original: {slot.trouble}")
        return {"level": slot.level}

    # What is behind them

    def _slot(self, device: str, peer: Peer | None) -> Slot:
        """Return a device; refuse a peer that wants to change one that another has."""
        slot = self._slots.get(device)
        if slot is None:
            known = ", ".join(self._slots) or "none"
            raise NotFound(f"there is no device {device!r}", hint=f"there are {known}")
        if peer and slot.owner and slot.owner != peer:
            raise DeviceBusy(f"{device} is leased to {slot.owner.who}")
        if peer and slot.owner:
            slot.heard = self._now()
        return slot

    def _take(self, slot: Slot, peer: Peer) -> None:
        """Give a device to a peer. Raises Conflict, ActuationError where nobody may have it."""
        if slot.paused:
            raise Conflict(f"{slot.device.uuid} is paused: {slot.paused}")
        if slot.level == "original" and slot.record:
            raise ActuationError(f"{slot.device.uuid} is not back: {slot.trouble}")
        slot.owner, slot.heard = peer, self._now()

    def _check(self, slot: Slot, setting: Wanted) -> None:
        """Refuse what is not granted. None, and what a knob was found at, always are."""
        found = self._found(slot)
        for knob, value in setting.items():
            if knob not in slot.allowed:
                granted = ", ".join(slot.allowed) or "none"
                raise UnknownKnob(f"{knob!r} is not granted", hint=f"granted are: {granted}")
            if not (value is None or among(value, (*slot.allowed[knob], found.get(knob)))):
                low, high = slot.allowed[knob][0], slot.allowed[knob][-1]
                raise OutOfRange(
                    f"{knob!r} cannot be {value!r}", hint=f"granted are values from {low} to {high}"
                )

    def _look(self, slot: Slot) -> dict[str, Value | None]:
        """Read the device. Raises ActuationError where it is not as we left it."""
        uuid = slot.device.uuid
        shown, epoch = self._hand.read(uuid)
        if slot.record and slot.record.epoch != epoch:
            slot.trial_until = slot.hold = None
            self._forget(slot)
            raise ActuationError(f"the driver of {uuid} was restarted and forgot what was set")
        wrong = [k for k, v in shown.items() if slot.foreign(k, v, ending=False)]
        if wrong:
            self._pause(slot, wrong[0], shown[wrong[0]])
            raise ActuationError(f"{uuid} is paused: {slot.paused}")
        return shown

    def _pause(self, slot: Slot, knob: str, value: Value | None) -> None:
        if not slot.paused:
            slot.paused = f"somebody else set {knob} to {value!r}; it stays until we are restarted"
            log.error("event=contaminated device=%s why=%r", slot.device.uuid, slot.paused)

    def _change(self, slot: Slot, setting: Wanted) -> None:
        """Journal, write, verify. What fails leaves the rest to whoever called."""
        uuid = slot.device.uuid
        shown = self._look(slot)
        todo = {k: v for k, v in setting.items() if slot.in_force(k, shown) != v}
        if not todo:
            return
        record = deepcopy(slot.record)
        if record is None:
            record = Record(uuid, self._boot, self._hand.read(uuid)[1])
        for knob, value in todo.items():
            touched = record.knobs.setdefault(knob, Touched(shown[knob]))
            touched.written = [*touched.written[-1:], value]
            touched.pending = True
        self._originals.save(record)
        slot.record = record
        targets = {k: slot.back(k, record.knobs[k]) if v is None else v for k, v in todo.items()}
        for knob, target in widening_first(targets, shown):
            self._hand.put(uuid, knob, target)
        now, _ = self._hand.read(uuid)
        wrong = [f"{k} is {now[k]!r}, not {t!r}" for k, t in targets.items() if differs(now[k], t)]
        if wrong:
            raise ActuationError(f"{uuid} reads back otherwise: {', '.join(wrong)}")
        for knob in todo:
            record.knobs[knob].pending = False
        self._originals.save(record)

    def _fall(self, slot: Slot) -> None:
        """End the trial: back to the hold, or to the original where there is none."""
        slot.trial_until = None
        if slot.hold is None or self._now() >= slot.hold.until:
            self._end(slot, "the trial is over")
            return
        try:
            self._change(slot, slot.whole(slot.hold.setting))
        except TuningError as error:
            self._end(slot, f"the hold could not be put in force: {error}")

    def _end(self, slot: Slot, why: str) -> None:
        """End all levels but the original."""
        if slot.level != "original" or slot.record:
            log.info("event=ended device=%s level=%s why=%r", slot.device.uuid, slot.level, why)
        slot.trial_until = slot.hold = slot.owner = None
        self._put_back(slot)

    def _put_back(self, slot: Slot) -> None:
        """Put every knob we wrote back, each for itself; what fails is tried again later."""
        if slot.record is None:
            return
        failures: list[str] = []
        try:
            failures = self._restore(slot, slot.record)
            if not failures:
                self._forget(slot)
        except TuningError as error:
            failures = [str(error)]
        slot.trouble = "; ".join(failures)
        if failures:
            log.error("event=not_restored device=%s why=%r", slot.device.uuid, slot.trouble)
            slot.retry_at = self._now() + slot.retry_s
            slot.retry_s = min(LONGEST_RETRY_S, 2.0 * slot.retry_s)

    def _restore(self, slot: Slot, record: Record) -> list[str]:
        uuid = slot.device.uuid
        shown, epoch = self._hand.read(uuid)
        if epoch != record.epoch:
            log.warning("event=journal_dropped device=%s why='the driver was restarted'", uuid)
            return []
        targets: dict[str, Value | None] = {}
        for knob, touched in record.knobs.items():
            if slot.foreign(knob, shown.get(knob), ending=True):
                self._pause(slot, knob, shown[knob])
            else:
                targets[knob] = slot.back(knob, touched)
        failures: list[str] = []
        for knob, target in widening_first(targets, shown):
            try:
                if target is None or shown.get(knob) != target:
                    self._hand.put(uuid, knob, target)
            except TuningError as error:
                failures.append(f"{knob}: {error}")
        now, _ = self._hand.read(uuid)
        wrong = [k for k, target in targets.items() if differs(now.get(k), target)]
        return failures or [f"{k} is {now[k]!r}, not {targets[k]!r}" for k in wrong]

    def _forget(self, slot: Slot) -> None:
        """Drop the journal of a device that is as it was found."""
        self._originals.forget(slot.device.uuid)
        slot.record, slot.retry_s = None, RETRY_S
        log.info("event=original device=%s", slot.device.uuid)

    def _found(self, slot: Slot) -> dict[str, Value | None]:
        """Return what the knobs were found at: what is noted, else what they show now."""
        noted = slot.record.knobs if slot.record else {}
        return self._hand.read(slot.device.uuid)[0] | {k: t.found for k, t in noted.items()}

    def _capability(self, slot: Slot) -> dict[str, Any]:
        """Return a device and its knobs: granted values, and what each was found at.

        Where nobody tells what that was, it is what the configuration says, or the knob's highest.
        """
        about = asdict(slot.device) | {"knobs": {}, "cannot": dict(slot.device.cannot)}
        unset = {k: v[-1] for k, v in about.pop("ranges").items()} | dict(slot.terms.original)
        try:
            for knob, found in self._found(slot).items():
                if knob in slot.allowed:
                    shown = unset[knob] if found is None else found
                    values = {"values": slot.allowed[knob], "found": shown}
                    about["knobs"][knob] = values | {"readable": found is not None}
        except TuningError as error:
            about["cannot"]["*"] = str(error)
        return about
