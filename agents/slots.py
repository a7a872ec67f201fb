"""What root does with one device: trial, hold, original; every ending falls back to the level below."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.grants import ActuatorConfig
from agents.hand import Hand, Value
from agents.originals import Originals, Record, Touched
from tuner import errors

log = logging.getLogger(__name__)

Wanted = Mapping[str, Any]
"""Knob to value; None is as it was found."""
RETRY_S = 1.0
"""The first wait before a device that did not go back is tried again; it doubles up to a minute."""
LONGEST_RETRY_S = 60.0


class Peer(NamedTuple):
    """One connection; no two have the same number."""

    number: int
    pid: int
    uid: int

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid}"


@dataclass(eq=False)
class Slot:
    """One device: what may be done to it, what is done, and for whom.

    The verbs are those of the wire; `ask` is the way to them. `paused` says why nothing is written
    until somebody restores the device, `trouble` why it is not back at its original. `heard` is when
    its agent last said anything. What has a time ends at most
    `tick_s` late, the driver's own time apart. `boot` names this start of the machine.
    """

    about: Mapping[str, Any]
    config: ActuatorConfig
    hand: Hand
    originals: Originals
    boot: str
    now: Callable[[], float]
    allowed: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    owner: Peer | None = None
    heard: float = 0.0
    trial_until: float | None = None
    held: Wanted | None = None
    held_until: float = 0.0
    paused: str = ""
    trouble: str = ""
    retry_s: float = RETRY_S
    retry_at: float = 0.0
    tick_s: float = 0.2

    def __post_init__(self) -> None:
        self.uuid: str = self.about["uuid"]
        self.terms = self.config.granted(self.uuid)
        self.record = Record(self.uuid, self.boot)

    @property
    def level(self) -> str:
        """By what right the device is set as it is."""
        if self.trial_until is not None:
            return "trial"
        return "original" if self.held is None else "hold"

    async def ask(self, peer: Peer, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a peer asks, once what is over has ended: a late renewal is too late.

        Raises:
            DeviceBusy, Unauthorised: it is not this peer's to ask.
        """
        async with self.lock:
            await self._end_what_is_over()
            if verb == "restore" and peer.uid not in (0, os.geteuid()):
                raise errors.Unauthorised(f"only root restores {self.uuid}")
            if self.owner and self.owner != peer and verb not in ("read", "restore"):
                raise errors.DeviceBusy(f"{self.uuid} is leased to {self.owner}")
            if self.owner == peer:
                self.heard = self.now()
            return await getattr(self, verb)(peer, **fields) or {"level": self.level}

    async def mind(self, stop: Collection[int]) -> None:
        """Do what is due by the clock, until stopped."""
        while not stop:
            async with self.lock:
                await self._end_what_is_over()
            await asyncio.sleep(self.tick_s)

    async def gone(self, peer: Peer) -> None:
        """Take note that a connection is gone: its trial ends at once, its hold after the grace."""
        async with self.lock:
            if self.owner == peer:
                self.owner, self.heard = None, self.now()
                if self.trial_until is not None:
                    await self._fall()

    async def replay(self) -> None:
        """Put the device back to what its journal says.

        A damaged journal leaves the device untouched. One of another boot, or of another load of the
        driver, is dropped: the hardware forgot what we did.
        """
        try:
            self.record = self.originals.get(self.uuid) or self.record
            if self.record.boot != self.boot:
                self._forget("another boot")
        except errors.TuningError as error:
            self._pause(f"{error}; put {self.uuid} back by hand and delete that file")
        else:
            await self._put_back()

    async def close(self) -> None:
        """Put the device back, whoever has it, and give it to nobody any more."""
        async with self.lock:
            await self._end("the actuator stops")
            self.paused = self.paused or "the actuator stops"
            await self.hand.close()

    # The verbs

    async def read(self, peer: Peer) -> dict[str, Any]:
        """Return what is in force, and what it was found at; None is what nobody can tell."""
        shown = await self._shown()
        found = self._found(shown)
        return {
            "values": {k: self._in_force(k, shown) for k in self.allowed},
            "found": {k: found.get(k) for k in self.allowed},
            "level": self.level,
            "holder": str(self.owner or ""),
            "paused": self.paused,
            "trouble": self.trouble,
        }

    async def acquire(self, peer: Peer, lease_s: float) -> None:
        """Give the device to this connection for a trial."""
        if not 0.0 < lease_s <= self.config.lease_s:
            raise errors.InvalidInput(f"lease_s is over 0 and at most {self.config.lease_s:g}")
        self._take(peer)
        self.trial_until = self.now() + lease_s

    async def apply(self, peer: Peer, setting: Wanted) -> dict[str, Any]:
        """Write a setting under the trial's lease; a failure falls back to the level below."""
        if self.trial_until is None or self.owner != peer:
            raise errors.Conflict(f"{self.uuid} is not leased to you", hint="acquire it first")
        await self._check(setting)
        try:
            await self._change(setting)
        except errors.TuningError:
            await self._fall()
            raise
        return await self.read(peer)

    async def renew(self, peer: Peer, lease_s: float) -> None:
        """Keep a trial, or a hold, alive."""
        if self.owner != peer or self.level == "original":
            why = self.paused or "it was not renewed"
            raise errors.Conflict(f"the lease of {self.uuid} is over: {why}")
        try:
            await self._look()
        except errors.TuningError:
            await self._end("it was changed from elsewhere, or lost")
            raise
        if self.trial_until is not None:
            self.trial_until = self.now() + min(lease_s, self.config.lease_s)

    async def hold(self, peer: Peer, setting: Wanted, valid_for_s: float) -> None:
        """Put a confirmed setting in force for as long as it is valid and its agent lives."""
        await self._check(setting)
        self._take(peer)
        self.trial_until = None
        self.held, self.held_until = setting, self.now() + valid_for_s
        try:
            await self._change(self._whole(setting))
        except errors.TuningError:
            await self._end("it could not be put in force")
            raise

    async def release(self, peer: Peer) -> None:
        """Put the device back to its original. Raises ActuationError where it does not go back."""
        await self._end("its agent released it")
        if self.record.knobs:
            raise errors.ActuationError(f"{self.uuid} is not back: {self.trouble}")

    async def restore(self, peer: Peer) -> dict[str, Any]:
        """Put the device back, whoever has it, and end a pause: what it shows now is its original."""
        await self._end("an operator restores it")
        self.paused = ""
        await self.replay()
        return await self.read(peer)

    # What is behind them

    def _take(self, peer: Peer) -> None:
        """Give the device to a peer. Raises Conflict, ActuationError where nobody may have it."""
        if self.paused:
            raise errors.Conflict(f"{self.uuid} is paused: {self.paused}")
        if self.level == "original" and self.record.knobs:
            raise errors.ActuationError(f"{self.uuid} is not back: {self.trouble}")
        self.owner, self.heard = peer, self.now()

    async def _check(self, setting: Wanted) -> None:
        """Refuse what is not granted. None, and what a knob was found at, always are."""
        found = self._found(await self._shown())
        for knob, value in setting.items():
            values = self.allowed.get(knob, ())
            if not values:
                hint = f"granted are: {', '.join(self.allowed) or 'none'}"
                raise errors.UnknownKnob(f"{knob!r} is not granted", hint=hint)
            if value is not None and value not in (*values, found.get(knob)):
                hint = f"granted are values from {values[0]} to {values[-1]}"
                raise errors.OutOfRange(f"{knob!r} cannot be {value!r}", hint=hint)

    async def _shown(self) -> dict[str, Value | None]:
        """Return what the knobs stand at.

        Raises:
            ActuationError: they cannot be told; or the driver was restarted and forgot what we set, so
                that nothing is in force any more.
        """
        shown: dict[str, Value | None]
        shown, epoch = await self.hand.ask("read", self.uuid)
        if not self.record.knobs:
            self.record.epoch = epoch
        elif self.record.epoch != epoch:
            self.trial_until = self.held = None
            self._forget("the driver was restarted")
            raise errors.ActuationError(f"the driver of {self.uuid} was restarted and forgot all")
        return shown

    async def _look(self) -> dict[str, Value | None]:
        """Read the device. Raises ActuationError where it is not as we left it."""
        shown = await self._shown()
        if any(self._foreign(knob, value, ending=False) for knob, value in shown.items()):
            raise errors.ActuationError(f"{self.uuid} is paused: {self.paused}")
        return shown

    async def _change(self, setting: Wanted) -> None:
        """Journal, write, verify. What fails leaves the rest to whoever called."""
        shown = await self._look()
        todo = {k: v for k, v in setting.items() if self._in_force(k, shown) != v}
        if not todo:
            return
        record = deepcopy(self.record)
        for knob, value in todo.items():
            touched = record.knobs.setdefault(knob, Touched(shown[knob]))
            touched.wrote, touched.pending = value, True
        self.originals.save(record)
        self.record = record
        targets = {k: self._back(k) if v is None else v for k, v in todo.items()}
        for knob, target in _widening_first(targets, shown):
            await self._put(knob, target)
        wrong = await self._differing(targets)
        if wrong:
            raise errors.ActuationError(f"{self.uuid} reads back otherwise: {', '.join(wrong)}")
        for knob in todo:
            record.knobs[knob].pending = False
        self.originals.save(record)

    async def _put(self, knob: str, target: Value | None) -> None:
        """Write a knob; None puts it to the driver's own default."""
        verb, *value = ("reset",) if target is None else ("write", target)
        await self.hand.ask(verb, self.uuid, knob, *value)

    async def _end_what_is_over(self) -> None:
        """End what is over, and try again what did not go back."""
        now = self.now()
        if self.trial_until is not None and now >= self.trial_until:
            log.warning("event=trial_lapsed device=%s", self.uuid)
            await self._fall()
        if self.held is not None and now >= self.held_until:
            await self._end("its time is over")
        if self.held is not None and now >= self.heard + self.config.agent_grace_s:
            await self._end("its agent is gone")
        if self.level == "original" and self.record.knobs and now >= self.retry_at:
            await self._put_back()

    async def _fall(self) -> None:
        """End the trial: back to the hold, or to the original where there is none."""
        self.trial_until, why = None, "the trial is over"
        if self.held is not None and self.now() < self.held_until:
            try:
                return await self._change(self._whole(self.held))
            except errors.TuningError as error:
                why = f"the hold could not be put in force: {error}"
        await self._end(why)

    async def _end(self, why: str) -> None:
        """End all levels but the original."""
        if self.level != "original" or self.record.knobs:
            log.info("event=ended device=%s level=%s why=%r", self.uuid, self.level, why)
        self.trial_until = self.held = self.owner = None
        await self._put_back()

    async def _put_back(self) -> None:
        """Put every knob we wrote back, each for itself; what fails is tried again later."""
        if not self.record.knobs:
            return
        failures: list[str] = []
        try:
            shown = await self._shown()
            ours = (k for k in self.record.knobs if not self._foreign(k, shown.get(k), ending=True))
            targets = {knob: self._back(knob) for knob in ours}
            for knob, target in _widening_first(targets, shown):
                try:
                    if target is None or shown.get(knob) != target:
                        await self._put(knob, target)
                except errors.TuningError as error:
                    failures.append(f"{knob}: {error}")
            failures += [] if failures else await self._differing(targets)
            if not failures:
                self._forget("it is back")
        except errors.TuningError as error:
            failures += [str(error)] if self.record.knobs else []
        self.trouble = "; ".join(failures)
        if failures:
            log.error("event=not_restored device=%s why=%r", self.uuid, self.trouble)
            self.retry_at = self.now() + self.retry_s
            self.retry_s = min(LONGEST_RETRY_S, 2.0 * self.retry_s)

    async def _differing(self, targets: Wanted) -> list[str]:
        """Return in words which knobs surely do not stand where they should."""
        now = await self._shown()
        told = [(k, now.get(k), target) for k, target in targets.items()]
        return [f"{k} is {n!r}, not {t!r}" for k, n, t in told if None not in (n, t) and n != t]

    def _forget(self, why: str) -> None:
        """Drop the journal: the device is as it was found. Raises StoreError."""
        log.info("event=original device=%s why=%r", self.uuid, why)
        self.originals.save(found := Record(self.uuid, self.boot))
        self.record, self.retry_s = found, RETRY_S

    def _pause(self, why: str) -> None:
        if not self.paused:
            self.paused = f"{why}; then run `jouletune actuator restore {self.uuid}`"
            log.error("event=paused device=%s why=%r", self.uuid, self.paused)

    def _foreign(self, knob: str, shown: Value | None, *, ending: bool) -> bool:
        """Return whether somebody else changed a knob since we wrote it, and pause the device if so.

        Ours is what we wrote last; once the device goes back, perhaps after a crash on the way, also
        what the knob was before and what it goes back to.
        """
        touched = self.record.knobs.get(knob)
        if shown is None or touched is None or touched.pending:
            return False
        back = self._back(knob)
        last = back if touched.wrote is None else touched.wrote
        if shown == last or (ending and shown in (touched.found, back)):
            return False
        self._pause(f"somebody else set {knob} to {shown!r}, we had set {last!r}; settle that")
        return True

    def _back(self, knob: str) -> Value | None:
        """Return what a knob that we wrote goes back to; None is the driver's own default."""
        found = self.terms.failsafe.get(knob, self.record.knobs[knob].found)
        return self.terms.original.get(knob) if found is None else found

    def _in_force(self, knob: str, shown: Wanted) -> Value | None:
        """Return what a knob stands at: what the hardware tells, else what we wrote last."""
        value, touched = shown.get(knob), self.record.knobs.get(knob)
        return touched.wrote if value is None and touched else value

    def _whole(self, setting: Wanted) -> Wanted:
        """Return a setting with every other knob that we wrote as it was found."""
        return {**dict.fromkeys(self.record.knobs), **setting}

    def _found(self, shown: Wanted) -> Wanted:
        """Return what the knobs were found at: a fail-safe, else what is noted, else what they show."""
        noted = {knob: touched.found for knob, touched in self.record.knobs.items()}
        return {**shown, **noted, **self.terms.failsafe}


def _widening_first(targets: Wanted, shown: Wanted) -> list[tuple[str, Any]]:
    """Return the knobs in the order to write them: what gives the device more room comes first."""

    def narrows(item: tuple[str, Any]) -> bool:
        before, target = shown.get(item[0]), item[1]
        return target is not None and (before is None or before >= target)

    return sorted(targets.items(), key=narrows)
