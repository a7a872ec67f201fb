"""One device in the root process. Its levels, highest first: job, trial, hold, original.

A level that ends falls back to the next lower one that is in force.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.actuator.journal import Membership
from agents.actuator.restoring import Forgotten, KnobValues, Restorer
from tuner import errors

log = logging.getLogger(__name__)

ROOTS = ("restore", "lease_job", "end_job")
"""The verbs that only root may run, on a device of any owner."""
LEVELS = ("job", "trial", "hold")
"""The levels above the original, highest first."""


class Peer(NamedTuple):
    """One connection to the actuator; `number` is unique."""

    number: int
    pid: int
    uid: int

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid}"

    @property
    def root(self) -> bool:
        """Return whether the peer is root or the actuator's own user."""
        return self.uid in (0, os.geteuid())


@dataclass(slots=True)
class LevelLease:
    """A level in force until `until`, unless renewed; `job` is the key of a batch job."""

    until: float
    setting: KnobValues = field(default_factory=dict)
    job: str = ""


@dataclass(eq=False)
class ManagedDevice:
    """One device: its grants, the level in force and the peer that owns it.

    `ask` runs the verbs, whose fields `requests` has checked. `heard_at` is the time of the owner's last
    request, or of its disconnection. A lease ends at most `tick_s` seconds late, plus the driver's time.
    An error here ends the leases of this device only. A job's setting is put over the hold, which stays
    valid; no trial begins meanwhile.
    """

    restorer: Restorer
    errors: list[str] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    owner: Peer | None = None
    heard_at: float = 0.0
    leases: dict[str, LevelLease] = field(default_factory=dict)
    tick_s: float = 0.2

    def __post_init__(self) -> None:
        self.uuid, self.config = self.restorer.uuid, self.restorer.config
        self.now, self.driver = self.restorer.now, self.restorer.driver

    @property
    def level(self) -> str:
        """Return the level in force: "job", "trial", "hold" or "original"."""
        return next((level for level in LEVELS if level in self.leases), "original")

    def describe(self) -> dict[str, Any]:
        """Return the device's description, its granted values, and its configured original and floor."""
        terms = {"granted": self.restorer.granted, "original": self.restorer.terms.original}
        return {**self.restorer.about, **terms, "floor": self.restorer.floor, "errors": self.errors}

    async def ask(self, peer: Peer, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Run a peer's verb, after every expired trial or hold has ended: a late renewal is refused.

        Raises:
            DeviceBusy: another peer owns the device.
            Unauthorised: only root may restore it.
            TuningError: the verb failed.
        """
        async with self._alone():
            await self._end_expired()
            if verb in ROOTS and not peer.root:
                raise errors.Unauthorised(
                    f"only root may {verb} {self.uuid}", hint="run it as root"
                )
            admin = peer.root and verb in (*ROOTS, "leave_budget")
            if self.owner and self.owner != peer and verb != "read" and not admin:
                raise errors.DeviceBusy(f"{self.uuid} is leased to {self.owner}")
            began = self.now()
            try:
                return await getattr(self, verb)(peer, **fields) or {"level": self.level}
            finally:
                if self.owner == peer:  # the lease does not run while its owner waits for us
                    self.heard_at = self.now()
                    if trial := self.leases.get("trial"):
                        trial.until += self.heard_at - began

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Serialise access; an unexpected error ends the setting in force, on this device only."""
        async with self.lock:
            try:
                yield
            except Forgotten as error:
                await self._end(str(error))
                raise
            except errors.TuningError:
                raise
            except Exception as error:
                log.exception("event=broken device=%s", self.uuid)
                await self._end(f"internal error: {error!r}")
                raise

    async def mind(self, stop: Collection[int]) -> None:
        """End expired leases and retry failed restores every `tick_s` seconds, until stopped."""
        while not stop:
            with suppress(Exception):  # reported and contained by _alone
                async with self._alone():
                    await self._end_expired()
            await asyncio.sleep(self.tick_s)

    async def disconnected(self, peer: Peer) -> None:
        """Note that a connection has closed: its trial ends at once, its hold after the grace."""
        async with self._alone():
            if self.owner == peer:
                self.owner, self.heard_at = None, self.now()
                if "trial" in self.leases:
                    await self._end("its agent has disconnected", "trial")

    async def replay(self) -> None:
        """Restore the device from its journal, or take up the hold that outlived the last actuator.

        Then grant its configured knobs; `errors` lists each one that cannot be granted, with the reason.
        """
        await self.restorer.recall()
        async with self._alone():
            if await self._keeps():
                self.heard_at = self.now()
                until = self.heard_at + self.config.hold_s
                self.leases["hold"] = LevelLease(until, self.restorer.held)
            elif self.restorer.record.entries:
                await self.restorer.restore()
                await self.restorer.describe()
            self._grant()

    async def _restore(self) -> None:
        """Restore the original. After trouble, look at what is offered: our values may have hidden it."""
        troubled = self.restorer.trouble
        await self.restorer.restore()
        if troubled and not self.restorer.trouble:
            await self.restorer.describe()
            self._grant()

    def _grant(self) -> None:
        """Set the granted values, and the errors of those that the device does not offer."""
        self.restorer.granted, self.errors = self.restorer.terms.values(self.restorer.about)
        if self.errors:
            log.error("event=not_granted why=%r", "; ".join(self.errors))

    async def _keeps(self) -> bool:
        """Return whether the hold may outlive the actuator: only the driver of a service can allow that."""
        with suppress(errors.TuningError):
            return bool(self.restorer.held and await self.driver.ask("keeps", self.uuid))
        return False

    async def release_driver(self) -> None:
        """End the process that has the driver open; the next request starts another."""
        async with self._alone():
            await self.driver.close()

    async def close(self) -> None:
        """Restore the device of any owner and refuse further requests; a hold that may outlive us stays."""
        async with self._alone():
            if not await self._keeps():
                await self._end("the actuator stops")
        self.restorer.paused = self.restorer.paused or "the actuator stops"
        await self.driver.close()

    # The verbs

    async def read(self, peer: Peer) -> dict[str, Any]:
        """Return the values in force, the original values (`found`) and the state; None is unknown."""
        reading = await self.restorer.shown()
        originals = self.restorer.original_values(reading)
        granted, budget, now = self.restorer.granted, self.restorer.record.budget, self.now()
        how = {"holder": str(self.owner or ""), "paused": self.restorer.paused}
        wrong = {"trouble": self.restorer.trouble or self.restorer.unknown}
        return {
            "values": {k: self.restorer.in_force(k, reading) for k in granted},
            "found": {k: originals.get(k) for k in granted},
            **self._in_force() | how | wrong,
            "throttled": self.restorer.throttled,
            "waiting": self.restorer.waiting,
            "unknown": self.restorer.unknown,
            "budget": budget.reported(now) | {"at_most": budget.at_most(now, granted)},
        }

    async def acquire(self, peer: Peer, lease_s: float, trial: str = "") -> None:
        """Lease the device to this connection for a trial, and log the agent's name of the trial."""
        if not 0.0 < lease_s <= self.config.lease_s:
            raise errors.InvalidInput(f"lease_s must be > 0 and <= {self.config.lease_s:g}")
        self._refuse_beside_a_job()
        self._take(peer)
        self.leases.setdefault("trial", LevelLease(0.0)).until = self.now() + lease_s
        log.info("event=trial device=%s trial=%r", self.uuid, trial)

    async def apply(self, peer: Peer, setting: KnobValues) -> dict[str, Any]:
        """Write a setting under the trial's lease; return the reading. A failure falls back one level."""
        self._require_owner(peer, "trial")
        granted = await self._granted(setting)
        trial = self.leases["trial"]
        trial.setting = {**trial.setting, **granted}
        async with self._or_end("its setting could not be applied", "trial"):
            await self.restorer.change(granted)
        return await self.read(peer)

    async def renew(self, peer: Peer, lease_s: float) -> dict[str, Any]:
        """Extend a trial's lease, or confirm a hold; write again the values that were lost.

        Returns the level, and the ceilings that the kernel caps lower (`throttled`).
        """
        if self.owner != peer or not {"trial", "hold"} & self.leases.keys():
            why = self.restorer.paused or "not renewed in time"
            raise errors.Conflict(f"the lease of {self.uuid} has ended: {why}")
        async with self._or_end("another program changed the device, or it was lost"):
            await self._put_in_force()
        if trial := self.leases.get("trial"):
            trial.until = self.now() + min(lease_s, self.config.lease_s)
        return {**self._in_force(), "throttled": self.restorer.throttled}

    async def hold(self, peer: Peer, setting: KnobValues, valid_for_s: float) -> None:
        """Put a confirmed setting in force for `valid_for_s` seconds, or until its agent has ended."""
        if not valid_for_s > 0:
            raise errors.InvalidInput("valid_for_s must be above 0")
        granted = await self._granted(setting)
        self._take(peer)
        self.leases.pop("trial", None)
        self.leases["hold"] = LevelLease(self.now() + min(valid_for_s, self.config.hold_s), granted)
        async with self._or_end("it could not be applied", "hold"):
            await self._put_in_force(again=True)

    async def lease_job(self, peer: Peer, job: str, setting: KnobValues) -> dict[str, Any]:
        """Put a job's setting above a hold, and end a trial; renew the lease if the job has it already.

        Returns whether it was renewed. Raises DeviceBusy if another job has the device.
        """
        before = self.leases.get("job")
        if before is None or before.job != job:
            self._refuse_beside_a_job()
            setting = await self._granted(setting)
            self._require_ours()
            log.info("event=job device=%s job=%s setting=%r", self.uuid, job, setting)
        self.leases.pop("trial", None)
        until = self.now() + self.config.agent_grace_s
        self.leases["job"] = LevelLease(until, before.setting if before else setting, job)
        async with self._or_end("it could not be applied", "job"):
            await self._put_in_force()
        return {"renewed": before is not None}

    async def end_job(self, peer: Peer, job: str) -> None:
        """End a job's lease: the hold below it is in force again. Raises ActuationError if that fails."""
        if (lease := self.leases.get("job")) and lease.job == job:
            await self._end("its epilog has run", "job")
        if self.level == "original":
            self._require_restored()

    async def leave(self, peer: Peer, knob: str, why: str) -> None:
        """Pause the device because another program sets a knob: leave that knob, restore the others."""
        self._refuse_beside_a_job()
        self._require_owner(peer)
        try:
            await self.restorer.leave(knob, why)
        finally:
            await self._end(why)

    async def release(self, peer: Peer) -> None:
        """Restore the device to its original, or leave it to a job. Raises ActuationError if that fails."""
        await self._end("released by its agent", "hold")
        if self.level == "original":
            self._require_restored()

    async def restore(self, peer: Peer) -> dict[str, Any]:
        """Restore the device of any owner and end a pause; the values it shows then are its original."""
        await self._end("restored by an operator")
        self.restorer.settle()
        return await self.read(peer)

    async def cap(
        self, peer: Peer, group: str, revision: int, steps: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Join a budget, or replace its steps; values above the cap in force are lowered first."""
        at = [{**step, "at_s": self.now() + step["in_s"]} for step in steps]
        member = Membership(group, revision, self.restorer.floor, at)
        reading = await self.restorer.admit(member)
        async with self._or_end("its cap cannot be kept"):
            await self.restorer.cap(member, reading)
        return await self._rest(peer)

    async def leave_budget(self, peer: Peer) -> dict[str, Any]:
        """Leave the budget: what its cap had lowered is in force again."""
        await self.restorer.quit()
        return await self._rest(peer)

    async def _rest(self, peer: Peer) -> dict[str, Any]:
        """Put the level in force again within its new caps; return the reading. Raises ActuationError."""
        if self.level == "original":
            await self._restore()
            self._require_restored()
        async with self._or_end("its budget cannot be kept"):
            await self._put_in_force()
        return await self.read(peer)

    # Leases, and the fall to a lower level

    @asynccontextmanager
    async def _or_end(self, why: str, *levels: str) -> AsyncIterator[None]:
        """End levels, see `_end`, if a change fails."""
        try:
            yield
        except errors.TuningError:
            await self._end(why, *levels)
            raise

    def _require_owner(self, peer: Peer, *levels: str) -> None:
        """Raise Conflict if a peer does not own the device, or one of the levels has ended."""
        if self.owner != peer or not self.leases.keys() >= {*levels}:
            raise errors.Conflict(f"{self.uuid} is not leased to you", hint="acquire it first")

    def _take(self, peer: Peer) -> None:
        """Make a peer the owner. Raises Conflict during a pause, ActuationError if not yet restored."""
        self._require_ours()
        self.owner, self.heard_at = peer, self.now()

    def _refuse_beside_a_job(self) -> None:
        """Raise DeviceBusy if a job has the device."""
        if job := self.leases.get("job"):
            why = f"{self.uuid} is leased to job {job.job}"
            raise errors.DeviceBusy(why, hint="wait for the end of the job")

    def _require_ours(self) -> None:
        """Raise Conflict during a pause, ActuationError if the device is not yet restored."""
        if self.restorer.paused:
            raise errors.Conflict(f"{self.uuid} is paused: {self.restorer.paused}")
        if self.level == "original":
            self._require_restored()

    def _require_restored(self) -> None:
        """Raise ActuationError if the device shows neither its original nor another program's setting."""
        if self.restorer.trouble or (self.restorer.stuck and not self.restorer.paused):
            raise errors.ActuationError(f"{self.uuid} is not restored: {self.restorer.trouble}")

    async def _granted(self, setting: KnobValues) -> KnobValues:
        """Return a setting with the values as granted, such as 1410 for 1410.0; None restores a knob.

        None and a knob's original value are always granted.

        Raises:
            UnknownKnob: a knob is not granted.
            OutOfRange: a value is not granted, or above the budget's cap.
        """
        originals = self.restorer.original_values(await self.restorer.shown())
        whole: dict[str, Any] = {}
        for knob, value in setting.items():
            values = self.restorer.granted.get(knob, ())
            if not values:
                hint = f"granted knobs: {', '.join(self.restorer.granted) or 'none'}"
                raise errors.UnknownKnob(f"{knob!r} is not granted", hint=hint)
            same = [v for v in (*values, originals.get(knob), None) if v == value]
            if not same:
                hint = f"granted values: {values[0]} to {values[-1]}"
                raise errors.OutOfRange(f"{knob!r} cannot be {value!r}", hint=hint)
            whole[knob] = same[0]
        within = self.restorer.clipped(whole)
        back = [k for k, v in whole.items() if v not in self.restorer.granted[k]]
        for knob in (k for k in whole if whole[k] != within[k]):
            why = f"{knob!r} cannot be {whole[knob]!r}: the budget's cap is {within[knob]!r}"
            raise errors.OutOfRange(why, hint="set at most that, or raise the budget")
        return {**whole, **dict.fromkeys(back)}

    async def _end_expired(self) -> None:
        """End an expired trial or hold, lower values above a cap, and retry a failed restore.

        What a CPU that came or went, or a resume, has changed is written again. A knob that cannot be
        granted is looked at again after such a change: with boost off, a device offers lower clocks only.
        """
        now = self.now()
        record, stirred = self.restorer.record, self.restorer.stirred
        try:
            self.restorer.keep()
            if stirred or self.restorer.clipped(record.setting) != record.setting:
                self.restorer.retry_at = now
                await self._put_in_force()
        except errors.TuningError as error:
            await self._end(f"it could not be kept in force: {error}")
        if stirred and self.errors and self.level == "original":
            await self.restorer.describe()
            self._grant()
        if lapsed := [level for level, lease in self.leases.items() if now >= lease.until]:
            log.warning("event=lapsed device=%s levels=%r", self.uuid, lapsed)
            await self._end("it was not renewed in time", *lapsed)
        if "hold" in self.leases and now >= self.heard_at + self.config.agent_grace_s:
            await self._end("its agent has ended", "hold")
        if self.level == "original" and self.restorer.due:
            await self._restore()

    async def _put_in_force(self, again: bool = False) -> None:
        """Write the setting of the level in force, within the cap: a trial's or a job's over the hold's.

        Values that were lost are written, too. `again`: see `Restorer.change`.
        """
        if self.level == "original":
            return
        setting: dict[str, Any] = {}
        for level in (level for level in reversed(LEVELS) if level in self.leases):
            setting |= self.leases[level].setting
        within = self.restorer.whole(self.restorer.clipped(setting))
        held = self.level != "trial" or self.restorer.record.held
        await self.restorer.change(within, held, again)

    def _in_force(self) -> dict[str, Any]:
        """Return the level in force, and the job that has the device."""
        job = self.leases.get("job")
        return {"level": self.level, "job": job.job if job else ""}

    async def _end(self, why: str, *levels: str) -> None:
        """End these levels and the trial, or all levels if none is named: fall back to the next lower one.

        A hold whose time has passed is not put in force again. A write that hung forces the original: if
        it takes effect late, a hold would not notice.
        """
        before, keep = self.level, levels and self.leases.keys() - {*levels, "trial"}
        self.leases = {level: lease for level, lease in self.leases.items() if level in keep}
        self.owner = self.owner if levels and "hold" not in levels else None
        valid = any(self.now() < lease.until for lease in self.leases.values())
        if valid and not self.driver.lingering:
            try:
                return await self._put_in_force()
            except errors.TuningError as error:
                why = f"the setting below could not be applied: {error}"
        if before != "original" or self.restorer.record.entries:
            log.info("event=ended device=%s level=%s why=%r", self.uuid, before, why)
        self.leases, self.owner = {}, None
        await self._restore()
