"""What root does with one device: trial, hold, original; every ending falls back to the level below."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.actuator.budget import Membership
from agents.actuator.restoring import Forgotten, KnobValues, Restorer
from tuner import errors

log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """One connection; no two have the same number."""

    number: int
    pid: int
    uid: int

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid}"

    @property
    def root(self) -> bool:
        """Whether it is root, or who the actuator runs as."""
        return self.uid in (0, os.geteuid())


@dataclass(eq=False)
class ManagedDevice:
    """One device: what may be done to it, what is done, and for whom.

    The verbs are those of the wire, which `requests` checks; `ask` is the way to them. `heard_at` is when
    its agent last reported anything. What has a time ends at most `tick_s` late, the driver's own time
    apart. Whatever goes wrong here ends this device's trial and hold, and nothing of another's.
    """

    restorer: Restorer
    errors: list[str] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    owner: Peer | None = None
    heard_at: float = 0.0
    trial_until: float | None = None
    held: KnobValues | None = None
    held_until: float = 0.0
    tick_s: float = 0.2

    def __post_init__(self) -> None:
        self.uuid, self.config = self.restorer.uuid, self.restorer.config
        self.now, self.driver = self.restorer.now, self.restorer.driver

    @property
    def level(self) -> str:
        """By what right the device is set as it is."""
        below = "original" if self.held is None else "hold"
        return below if self.trial_until is None else "trial"

    async def grant(self) -> None:
        """Grant what the configuration says; `errors` is what of it cannot be granted, and why."""
        async with self._alone():
            granted, self.errors = self.restorer.terms.values(self.restorer.about)
            for knob in [k for k in self.restorer.about.get("probed", ()) if k in granted]:
                with suppress(errors.TuningError):  # a trial of it reports
                    if why := await self.restorer.probe(knob):
                        self.errors.append(f"{self.uuid}: {knob} is not granted: {why}")
                        del granted[knob]
            self.restorer.granted = granted
        if self.errors:
            log.error("event=not_granted why=%r", "; ".join(self.errors))

    def describe(self) -> dict[str, Any]:
        """Return what the device is, what may be set, and where it goes back to."""
        terms = {"granted": self.restorer.granted, "original": self.restorer.terms.original}
        floor = {"floor": self.restorer.floor}
        return {**self.restorer.about, **terms, **floor, "errors": self.errors}

    async def ask(self, peer: Peer, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a peer asks, once what is over has ended: a late renewal is too late.

        Raises:
            DeviceBusy, Unauthorised: it is not this peer's to ask.
        """
        async with self._alone():
            await self._end_expired()
            if verb == "restore" and not peer.root:
                raise errors.Unauthorised(f"only root restores {self.uuid}")
            admin = peer.root and verb in ("restore", "leave_budget")
            if self.owner and self.owner != peer and verb != "read" and not admin:
                raise errors.DeviceBusy(f"{self.uuid} is leased to {self.owner}")
            if self.owner == peer:
                self.heard_at = self.now()
            began = self.now()
            try:
                return await getattr(self, verb)(peer, **fields) or {"level": self.level}
            finally:
                if self.owner == peer:  # the time that it waits for us is not its own
                    self.heard_at = self.now()
                    self.trial_until = self.trial_until and self.trial_until + self.now() - began

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Do one thing at a time; an unexpected error ends the setting in force, on this device alone."""
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
        """Do what is due by the clock, until stopped."""
        while not stop:
            with suppress(Exception):  # reported and contained by _alone
                async with self._alone():
                    await self._end_expired()
            await asyncio.sleep(self.tick_s)

    async def disconnected(self, peer: Peer) -> None:
        """Take note that a connection is gone: its trial ends at once, its hold after the grace."""
        async with self._alone():
            if self.owner == peer:
                self.owner, self.heard_at = None, self.now()
                if self.trial_until is not None:
                    await self._fall()

    async def replay(self) -> None:
        """Restore the device to what its journal says."""
        await self.restorer.recall()
        async with self._alone():
            if await self._keeps():
                self.held, self.heard_at = self.restorer.held, self.now()
                self.held_until = self.heard_at + self.config.hold_s
            else:
                await self.restorer.restore()

    async def _keeps(self) -> bool:
        """Return whether a hold of what a change restarts stays over the actuator's own restart."""
        with suppress(errors.TuningError):
            return bool(self.restorer.held and await self.driver.ask("keeps", self.uuid))
        return False

    async def release_driver(self) -> None:
        """End the process that has the driver open; the next question starts another."""
        async with self._alone():
            await self.driver.close()

    async def close(self) -> None:
        """Restore the device, regardless of its owner, and grant it no more."""
        async with self._alone():
            if not await self._keeps():
                await self._end("the actuator stops")
        self.restorer.paused = self.restorer.paused or "the actuator stops"
        await self.driver.close()

    # The verbs

    async def read(self, peer: Peer) -> dict[str, Any]:
        """Return what is in force, and its original value; None: unknown."""
        reading = await self.restorer.shown()
        originals = self.restorer.original_values(reading)
        granted, budget, now = self.restorer.granted, self.restorer.record.budget, self.now()
        how = {"level": self.level, "holder": str(self.owner or ""), "paused": self.restorer.paused}
        wrong = {"trouble": self.restorer.trouble or self.restorer.unknown}
        return {
            "values": {k: self.restorer.in_force(k, reading) for k in granted},
            "found": {k: originals.get(k) for k in granted},
            **how | wrong,
            "throttled": self.restorer.throttled,
            "waiting": self.restorer.waiting,
            "unknown": self.restorer.unknown,
            "budget": budget.reported(now) | {"at_most": budget.at_most(now, granted)},
        }

    async def acquire(self, peer: Peer, lease_s: float, trial: str = "") -> None:
        """Give the device to this connection for a trial, and log what its agent calls that."""
        if not 0.0 < lease_s <= self.config.lease_s:
            raise errors.InvalidInput(f"lease_s must be > 0 and <= {self.config.lease_s:g}")
        self._take(peer)
        self.trial_until = self.now() + lease_s
        log.info("event=trial device=%s trial=%r", self.uuid, trial)

    async def apply(self, peer: Peer, setting: KnobValues) -> dict[str, Any]:
        """Write a setting under the trial's lease; a failure falls back to the level below."""
        if self.trial_until is None or self.owner != peer:
            raise errors.Conflict(f"{self.uuid} is not leased to you", hint="acquire it first")
        granted = await self._granted(setting)
        try:
            await self.restorer.change(granted)
        except errors.TuningError:
            await self._fall()
            raise
        return await self.read(peer)

    async def renew(self, peer: Peer, lease_s: float) -> dict[str, Any]:
        """Keep a trial, or a hold, alive and in force; return what a cap of the kernel holds below it."""
        if self.owner != peer or self.level == "original":
            why = self.restorer.paused or "not renewed in time"
            raise errors.Conflict(f"the lease of {self.uuid} has ended: {why}")
        try:
            await self._put_in_force()
        except errors.TuningError:
            await self._end("another program changed the device, or it was lost")
            raise
        if self.trial_until is not None:
            self.trial_until = self.now() + min(lease_s, self.config.lease_s)
        return {"level": self.level, "throttled": self.restorer.throttled}

    async def hold(self, peer: Peer, setting: KnobValues, valid_for_s: float) -> None:
        """Put a confirmed setting in force for as long as it is valid and its agent lives."""
        if not valid_for_s > 0:
            raise errors.InvalidInput("valid_for_s must be above 0")
        granted = await self._granted(setting)
        self._take(peer)
        self.trial_until = None
        self.held, self.held_until = granted, self.now() + min(valid_for_s, self.config.hold_s)
        try:
            await self.restorer.change(self.restorer.whole(granted), held=True)
        except errors.TuningError:
            await self._end("it could not be applied")
            raise

    async def leave(self, peer: Peer, knob: str, why: str) -> None:
        """Pause, as another program sets a knob: leave it that one, and put the rest back."""
        if self.owner != peer:
            raise errors.Conflict(f"{self.uuid} is not leased to you", hint="acquire it first")
        try:
            await self.restorer.leave(knob, why)
        finally:
            await self._end(why)

    async def release(self, peer: Peer) -> None:
        """Restore the device to its original. Raises ActuationError where it does not go back."""
        await self._end("released by its agent")
        self._require_restored()

    async def restore(self, peer: Peer) -> dict[str, Any]:
        """Restore the device, of any owner, and end a pause; its values are then its original."""
        await self._end("restored by an operator")
        self.restorer.settle()
        return await self.read(peer)

    async def cap(
        self, peer: Peer, group: str, revision: int, steps: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Be a member of a budget with these steps; what is above the cap in force is lowered first."""
        try:
            at = [{**step, "at_s": self.now() + step["in_s"]} for step in steps]
            await self.restorer.cap(Membership(group, revision, {}, at))
        except (errors.StoreError, errors.ActuationError) as error:
            await self._end(f"its cap cannot be kept: {error}")
            raise
        return await self._rest(peer)

    async def leave_budget(self, peer: Peer) -> dict[str, Any]:
        """Leave the budget: what the device falls back to is its original again."""
        await self.restorer.quit()
        return await self._rest(peer)

    async def _rest(self, peer: Peer) -> dict[str, Any]:
        """Have what is neither tried nor held where it falls back to. Raises ActuationError."""
        if self.level == "original":
            await self.restorer.restore()
            self._require_restored()
        return await self.read(peer)

    # What is behind them

    def _take(self, peer: Peer) -> None:
        """Give the device to a peer. Raises Conflict, ActuationError where it cannot be granted."""
        if self.restorer.paused:
            raise errors.Conflict(f"{self.uuid} is paused: {self.restorer.paused}")
        if self.level == "original":
            self._require_restored()
        self.owner, self.heard_at = peer, self.now()

    def _require_restored(self) -> None:
        """Raise ActuationError where the device is not at its original or another program's setting."""
        if self.restorer.trouble or (self.restorer.stuck and not self.restorer.paused):
            raise errors.ActuationError(f"{self.uuid} is not restored: {self.restorer.trouble}")

    async def _granted(self, setting: KnobValues) -> KnobValues:
        """Return a setting in the granted values' own form: 1410.0 is 1410.

        Refuses what is not granted. None, and the original values of a knob, always are.
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
        """End what is over, lower what is above a cap, and try again what did not go back."""
        now = self.now()
        try:
            if self.level != "original":
                await self.restorer.clip()
        except errors.TuningError as error:
            await self._end(f"its cap cannot be kept: {error}")
        if self.trial_until is not None and now >= self.trial_until:
            log.warning("event=trial_lapsed device=%s", self.uuid)
            await self._fall()
        if self.held is not None and now >= self.held_until:
            await self._end("its valid_for_s has passed")
        if self.held is not None and now >= self.heard_at + self.config.agent_grace_s:
            await self._end("its agent has ended")
        if self.restorer.stirred:  # CPUs, or a resume: what a renewal would see
            self.restorer.retry_at = now
            try:
                await self._put_in_force()
            except errors.TuningError as error:
                await self._end(f"it could not be kept in force: {error}")
        try:
            self.restorer.keep()
        except errors.StoreError as error:
            await self._end(str(error))
        if self.level == "original" and self.restorer.due:
            await self.restorer.restore()

    async def _put_in_force(self) -> None:
        """Write what came back, or was lost, while a trial or a hold is in force."""
        if self.level != "original":
            setting, held = self.restorer.record.setting, self.restorer.record.held
            await self.restorer.change(setting, held, again=False)

    async def _fall(self) -> None:
        """End the trial: back to the hold, or to the original where there is none.

        To the original, too, while a write that hung may still be done: a hold would not see it.
        """
        self.trial_until, why = None, "the trial has ended"
        if self.held is not None and self.now() < self.held_until and not self.driver.lingering:
            try:
                held = self.restorer.whole(self.restorer.clipped(self.held))
                return await self.restorer.change(held, held=True, again=False)
            except errors.TuningError as error:
                why = f"the hold could not be applied: {error}"
        await self._end(why)

    async def _end(self, why: str) -> None:
        """End all levels but the original."""
        if self.level != "original" or self.restorer.record.entries:
            log.info("event=ended device=%s level=%s why=%r", self.uuid, self.level, why)
        self.trial_until = self.held = self.owner = None
        await self.restorer.restore()
