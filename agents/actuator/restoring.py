"""What root has changed on one device: journalled before it is written, and restored.

Sources: drivers/cpufreq/cpufreq.c and drivers/devfreq/devfreq.c of the kernel: `scaling_max_freq` and
`max_freq` show the lowest of all limits, so also those of heat and firmware, not the one that was written.
It is one file, so an audit finds every restore in one place.
"""

import errno
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from agents.actuator.budget import Membership
from agents.actuator.driver import DriverProcess, Value
from agents.actuator.grants import ActuatorConfig
from agents.actuator.journal import KnobState, Record, RestoreJournal
from tuner import errors
from tuner.errors import ActuationError, Conflict, DeviceLost, StoreError, TuningError

log = logging.getLogger(__name__)

KnobValues = Mapping[str, Any]
"""Knob to value; None is at its original setting."""
RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""The first wait before what failed is tried again; it doubles up to the longest."""
LOOK_S = 5.0
"""How often a member's floor is looked at while nothing else is set: a driver may be loaded again."""
SWITCH = ("off", "on")
"""What boost is set to."""
LOCKED = tuple(map(os.strerror, (errno.EACCES, errno.EPERM, errno.ENODATA)))
"""What the kernel answers to a write where firmware has locked a limit."""
RESTORE = "run `jouletune actuator restore"
FLOOR = "set [device.budget] floor in actuator.toml to granted values below its original"
LATE = "a hung write may still take effect; the device is restored again after that"


class Forgotten(ActuationError, code="actuation"):
    """The driver was restarted and forgot what we set. Nothing is in force any more."""


@dataclass(eq=False)
class Restorer:
    """One device's knobs. Changes are kept in memory; the disk is for who comes after a crash.

    `boot` names this start of the machine. `paused` says why nothing is written until an operator restores
    the device, `trouble` why it is not back at its original, `unknown` what a damaged journal has left
    unknown, `caps` what the kernel holds ceilings at, below what we wrote, `lower` what others lowered them
    to, `waits` whether all was restored and only caps are waited for. What is restored is never checked
    against what is offered.
    """

    about: Mapping[str, Any]
    config: ActuatorConfig
    driver: DriverProcess
    originals: RestoreJournal
    boot: str
    now: Callable[[], float]
    paused: str = ""
    trouble: str = ""
    unknown: str = ""
    retry_s: float = RETRY_S
    retry_at: float = 0.0
    granted: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    caps: dict[str, Value] = field(default_factory=dict)
    lower: dict[str, Value | None] = field(default_factory=dict)
    waits: bool = False

    def __post_init__(self) -> None:
        self.uuid: str = self.about["uuid"]
        self.terms = self.config.granted(self.uuid)
        self.record = Record(self.uuid, self.boot)
        self.record = self._fresh({})

    def _fresh(self, knobs: Mapping[str, KnobState], lost: bool = False) -> Record:
        """Return a record of this boot; a member's floor stays in it, to be written where it was `lost`."""
        kept = {k: replace(t, wrote=None, pending=lost) for k, t in self._members.items()}
        driver = str(self.about.get("driver") or "")
        return Record(self.uuid, self.boot, "", {**knobs, **kept}, driver, self.record.budget)

    @property
    def wrong(self) -> str:
        """What is not as it should be."""
        return self.paused or self.trouble or self.unknown

    def recall(self) -> None:
        """Take from the journal what is to be restored.

        Where no copy is whole, that is what actuator.toml names of this device: to the fail-safe, to
        what it says of the original, else to the driver's default.
        """
        try:
            self.record = self.originals.get(self.uuid) or self.record
        except Exception as error:  # noqa: BLE001 - whatever reads wrong is damaged
            named = {*self.terms.grant, *self.terms.original, *self.terms.failsafe}
            ours = sorted(named & self.about["ranges"].keys())
            self.record = self._fresh({k: self._state(k, None) for k in ours})
            for knob in self.terms.floor.keys() & self.record.knobs.keys():  # it may be a member
                self.record.knobs[knob].back = self.terms.floor[knob]
            names = ", ".join(ours) or "nothing"
            done = f"the floor, the fail-safe or the driver's default was set: {names}"
            why = f"{_in_words(error)}; its previous value is unknown; {done}"
            self.unknown = f"{why}; check the device, then {RESTORE} {self.uuid}`"
            log.error("event=original_unknown device=%s why=%r", self.uuid, self.unknown)

    async def shown(self) -> dict[str, Value | None]:
        """Return what the knobs stand at, asked twice: one wrong answer shall change nothing.

        Raises:
            ActuationError: they are unknown; Forgotten where the driver was restarted.
        """
        shown: dict[str, Value | None]
        reads = [await self.driver.ask("read", self.uuid) for _ in range(2)]
        if reads[0] != reads[1]:  # a cap moves at any moment
            reads = [reads[1], await self.driver.ask("read", self.uuid)]
        if reads[0] != reads[1]:
            raise ActuationError(f"two reads of {self.uuid} differ: {reads[0]}, then {reads[1]}")
        shown, epoch = reads[1]
        if not self.record.knobs or not self.record.epoch:
            self.record.epoch = epoch
        elif self.record.epoch != epoch:
            self._forget("the driver was restarted", lost=True)
            raise Forgotten(f"the driver of {self.uuid} was restarted and lost its settings")
        return shown

    async def look(self) -> dict[str, Value | None]:
        """Read the device. Raises ActuationError where it is not as we left it."""
        shown = await self.shown()
        if await self._foreign(shown, ending=False):
            raise ActuationError(f"{self.uuid} is paused: {self.paused}")
        return shown

    @property
    def held(self) -> KnobValues:
        """The hold of a past actuator that is in force; empty where it is not, or not sure."""
        knobs, same = self.record.knobs, self.record.held and self.record.boot == self.boot
        whole = same and not any(touched.pending for touched in knobs.values())
        return {k: t.wrote for k, t in knobs.items()} if whole else {}

    async def change(self, setting: KnobValues, held: bool = False) -> None:
        """Journal, write, verify. A failure leaves the rest to the caller."""
        held = held and bool(self.about.get("restarts"))
        shown = await self.look()
        # A lock that cannot be read may be lost: it is written whenever it is requested.
        blind = {k for k, v in setting.items() if shown.get(k, v) is None and v is not None}
        todo = {k: v for k, v in setting.items() if k in blind or self.in_force(k, shown) != v}
        new = {k for k, v in todo.items() if v is None and k in shown} - self.record.knobs.keys()
        # What is at its original setting needs no write.
        back = {k for k in new if self._state(k, shown[k]).last == shown[k]}
        todo = {k: v for k, v in todo.items() if k not in back}
        if not todo and held == self.record.held:
            return
        unread = [knob for knob in todo if knob not in shown]
        if unread:
            raise ActuationError(f"{self.uuid} does not report {', '.join(unread)}")
        for knob in (todo.keys() & self._ceilings) - self.record.knobs.keys():
            state, top = self._state(knob, shown[knob]), self.granted[knob][-1]
            if state.back is None and shown[knob] != top and _below(shown[knob], top):
                state = replace(state, wrote=top, pending=False, unsure=True)
                await self._lowered(knob, state, state.found, ending=False)
        knobs, self.waits = self.record.knobs, False
        states = {k: knobs.get(k) or self._state(k, shown[k]) for k in todo}
        states = {k: replace(t, wrote=todo[k], pending=True) for k, t in states.items()}
        self._save(replace(self.record, knobs={**knobs, **states}, held=held))
        targets = {k: t.last for k, t in states.items()}
        for knob, target in _widening_first(targets, shown):
            try:
                await self.driver.ask("write", self.uuid, knob, target)
            except errors.KnobRefused:
                if knob not in knobs:  # it never took: there is nothing to restore
                    self._note(knob, None)
                raise
        wrong = await self._differing(targets)
        if wrong:
            raise ActuationError(f"{self.uuid} did not apply the setting: {', '.join(wrong)}")
        for state in states.values():
            state.pending = False
        self.originals.save(self.record)

    async def leave(self, knob: str, why: str) -> None:
        """Pause, and leave a knob as it is where the hardware shows that another program sets it.

        Raises:
            StoreError, ActuationError: it goes back with the others.
        """
        self.paused = f"{why}; stop it, then {RESTORE} {self.uuid}`"
        log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        touched = self.record.knobs.get(knob)
        if touched and await self.driver.ask("overruled", self.uuid, knob, touched.wrote):
            self._note(knob, None)

    async def probe(self, knob: str) -> str:
        """Return why a knob is locked, empty where it is not: what it shows is written once more.

        Nothing is written while the device is not at its original, or before that is journalled.
        """
        if self.record.knobs:
            return ""
        shown, why = await self.shown(), ""
        self._save(self._fresh({knob: self._state(knob, shown.get(knob))}))
        try:
            await self.driver.ask("write", self.uuid, knob, shown.get(knob))
        except DeviceLost:
            raise
        except ActuationError as error:
            why = str(error)
        self._forget("a knob was probed")
        return why if any(word in why for word in LOCKED) else ""

    def keep(self) -> None:
        """Write the journal again where it is not as we wrote it. Raises StoreError where it cannot be."""
        if not self.originals.kept(self.record):
            self.originals.save(self.record)

    @property
    def due(self) -> bool:
        """Whether it is time to restore again what did not go back; what is paused is root's."""
        waits = self.now() < self.retry_at or (self.paused and not self.trouble)
        return bool(self.record.knobs and not waits)

    @property
    def altered(self) -> bool:
        """Whether a knob is not at its original; a member's is at its floor instead."""
        ours, members = self.record.knobs.items(), self._members
        return any(t.pending or t.wrote is not None or k not in members for k, t in ours)

    @property
    def floor(self) -> dict[str, Any]:
        """Return where a member falls back to; empty where it can be none."""
        floor = self.terms.floor
        return dict(floor) if all(v in self.granted.get(k, ()) for k, v in floor.items()) else {}

    @property
    def _members(self) -> dict[str, KnobState]:
        """The knobs that a budget caps."""
        return {k: t for k, t in self.record.knobs.items() if k in self.record.budget.floor}

    def clipped(self, setting: KnobValues) -> dict[str, Any]:
        """Return a setting within the cap in force."""
        most = self.record.budget.at_most(self.now(), self.granted)
        over = {k: m for k, m in most.items() if k in setting and not _below(setting[k] or m, m)}
        return {**setting, **over}

    async def clip(self) -> None:
        """Lower what is above the cap in force. Raises TuningError where it cannot be."""
        last = {k: t.last for k, t in self._members.items()}
        if over := {k: v for k, v in self.clipped(last).items() if v != last[k]}:
            log.info("event=lowered_to_cap device=%s cap=%r", self.uuid, over)
            await self.change(over)

    async def cap(self, member: Membership) -> None:
        """Keep to a budget from now on: journalled first, then lowered. `member` has no floor yet.

        Raises:
            Conflict, OutOfRange: it has no floor, or that is above its original; nothing is changed.
            StoreError, ActuationError: it may be set as before; end that.
        """
        member.floor, joined = self.floor, bool(self.record.budget.floor)
        if not member.floor:
            raise Conflict(f"{self.uuid} has no granted floor", hint=FLOOR)
        if joined and member.revision < self.record.budget.revision:
            why = f"{self.uuid} has revision {self.record.budget.revision} of its caps already"
            raise Conflict(why, hint="give a later one")
        if not joined:
            originals = self.original_values(await self.look())
            for knob, value in member.floor.items():
                if not _below(value, originals[knob] or value):
                    why = f"the floor of {knob}, {value!r}, is above {originals[knob]!r}, its original"
                    raise errors.OutOfRange(f"{self.uuid}: {why}", hint=FLOOR)
        await self.change({k: v for k, v in member.floor.items() if k not in self.record.knobs})
        knobs = {k: self._state(k, v) for k, v in member.floor.items()} | self.record.knobs
        knobs |= {k: replace(knobs[k], back=v, lasts=True) for k, v in member.floor.items()}
        # A lower cap needs no disk: `keep` ends what is in force while that is full.
        self._save(replace(self.record, knobs=knobs, budget=member), ending=joined)
        await self.clip()

    def lose(self) -> None:
        """Have a member's floor written once more: the driver may have lost it."""
        self.record, self.retry_at = self._fresh(self.record.knobs, lost=True), 0.0

    def quit(self) -> None:
        """Leave the budget: its knobs go back to their originals. Raises StoreError."""
        whole = {k: (self._state(k, t.found), t) for k, t in self._members.items()}
        back = {k: replace(s, wrote=t.last, pending=t.pending) for k, (s, t) in whole.items()}
        self._save(replace(self.record, knobs={**self.record.knobs, **back}, budget=Membership()))

    def settle(self) -> None:
        """End a pause: what the device shows now is its original. Raises StoreError."""
        if self.paused and not self.trouble:
            self._forget("an operator settled it", lost=True)
        self.paused = self.unknown = ""

    async def restore(self) -> None:
        """Put every knob we wrote back, each for itself; what fails, however, is tried again later."""
        if not self.record.knobs:
            return
        failures: list[str] = []
        late, self.waits = self.driver.lingering, self.waits and not self.paused
        if self.record.boot != self.boot:  # what was done in another is gone, but what outlives it
            self.record.budget = replace(self.record.budget, revision=0, steps=())
            lasting = {k: t for k, t in self.record.knobs.items() if t.lasts}
            self.record = self._fresh(lasting, lost=True)
        try:
            if self.record.knobs:
                failures = await self._restore_knobs() or [LATE] * late
            capped = {k: t for k, t in self.record.knobs.items() if k in self.caps}
            if failures:  # what is pending is so after a crash, too
                self.originals.save(self.record)
            elif capped and not self.paused:  # written, and known to be back once that is over
                back = {k: replace(t, wrote=None, pending=False) for k, t in capped.items()}
                self._save(self._fresh(back))
                self.waits = True
            elif not self.paused and (self.altered or not self.record.budget.floor):
                self._forget("the device is restored")
        except Forgotten:
            if self.record.knobs:  # a member's floor, lost with all else
                return await self.restore()
            failures = []
        except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
            failures.append(_in_words(error))
        previous, self.trouble = self.trouble, "; ".join(failures)
        if failures:
            if previous != self.trouble:
                log.error("event=not_restored device=%s why=%r", self.uuid, self.trouble)
            await self.driver.renew()  # the next try asks a fresh process
            self.retry_s = RETRY_S if failures == [LATE] else self.retry_s
        self.retry_at = self.now() + LOOK_S
        if failures or self.waits:
            self.retry_at = self.now() + self.retry_s
            self.retry_s = min(LONGEST_RETRY_S, 2.0 * self.retry_s)

    async def _restore_knobs(self) -> list[str]:
        """Restore our changes; return in words what did not go. Raises ActuationError."""
        failures: list[str] = []
        shown: dict[str, Value | None] = {}
        try:
            shown = await self.shown()
        except (DeviceLost, Forgotten):
            raise
        except ActuationError as error:  # what cannot be read can still be written
            failures.append(str(error))
        # What restarts drops only what we set: whatever it shows, nothing of another's is undone.
        theirs = await self._foreign({} if self.about.get("restarts") else shown, ending=True)
        knobs = {k: t for k, t in self.record.knobs.items() if k not in theirs}
        done = {k for k in knobs if self.waits and self._at_cap(k, shown)}
        targets = {knob: touched.original for knob, touched in knobs.items() if knob not in done}
        for knob, target in _widening_first(targets, shown):
            try:
                # A cap may show what is not asked for: a ceiling is written whatever it shows.
                if target is None or shown.get(knob) != target or knob in self._ceilings:
                    self.record.knobs[knob].pending = True  # what it shows from now on is our doing
                    await self.driver.ask("write", self.uuid, knob, target)
            except Exception as error:  # noqa: BLE001 - the other knobs go back all the same
                failures.append(f"{knob}: {_in_words(error)}")
        return failures or await self._differing(targets)

    async def _differing(self, targets: KnobValues) -> list[str]:
        """Return in words which knobs surely do not stand where they should; a cap is no such thing.

        Before, what was written is put in force where that takes a restart.
        """
        if self.about.get("restarts"):
            await self.driver.ask("commit", self.uuid)
        now, wrong = await self.shown(), list[str]()
        for knob, target in targets.items():
            value = now.get(knob)
            if value is None or target is None or value == target:
                self.caps.pop(knob, None)
            elif knob in self._ceilings and _below(value, target):
                self._capped(knob, value)
            else:
                wrong.append(f"{knob} is {value!r}, not {target!r}")
        return wrong

    @property
    def throttled(self) -> str:
        """Which ceilings the kernel holds below what was requested."""
        return ", ".join(f"a cap holds {k} at {v!r}" for k, v in self.caps.items())

    def _save(self, record: Record, ending: bool = False) -> None:
        """Have a record on the disk, then in memory; an `ending` needs no disk. Raises StoreError."""
        with suppress(*([StoreError] if ending else [])):
            self.originals.save(record)
        self.record = record

    def _forget(self, why: str, lost: bool = False) -> None:
        """Drop the journal: the device is at its original setting, or its floor. Raises StoreError."""
        log.info("event=original device=%s why=%r", self.uuid, why)
        self._save(self._fresh({}, lost), ending=lost and bool(self._members))
        self.retry_s, self.caps, self.lower, self.waits = RETRY_S, {}, {}, False

    async def _foreign(self, shown: KnobValues, *, ending: bool) -> set[str]:
        """Return the knobs that another program changed since we wrote them, and pause the device if so.

        Ours is what we wrote last; once the device goes back, perhaps after a crash on the way, also
        what the knob was before and what it goes back to, file by file where it has several. What is
        below a ceiling that we wrote may be a cap.
        """
        foreign: set[str] = set()
        # Switching boost opens ceilings: a kill on the way back leaves them above what anybody wrote.
        opened = self._ceilings if any(t.last in SWITCH for t in self.record.knobs.values()) else ()
        for knob, touched in [*self.record.knobs.items()]:
            value, last, lowered = shown.get(knob), touched.last, touched.lowered
            readable = None not in (value, last) and not self._at_cap(knob, shown)
            if not readable or (touched.pending and not lowered):
                continue
            ours = {*" ".join(map(str, (last, touched.found, touched.original))).split()}
            back = {*str(value).split()} <= ours or (knob in opened and _below(last, value, ours))
            same = value == last or (ending and back)
            if same and not touched.unsure and (value != last or not lowered):
                self.caps.pop(knob, None)
                continue
            below = knob in self._ceilings and _below(value, last)
            lower = (lowered if value == last else value) if below else None
            noted = lower is None or self.lower.get(knob) == lower
            if noted or await self._lowered(knob, touched, lower, ending):
                foreign.add(knob)
                why = f"another program set {knob} to {lower or value!r} instead of {last!r}"
                self.paused = self.paused or f"{why}; stop it; then {RESTORE} {self.uuid}`"
                log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        return foreign

    async def _lowered(self, knob: str, touched: KnobState, to: Value | None, ending: bool) -> bool:
        """Return whether another program lowered a ceiling, not a cap: ours, written again, takes effect.

        The lower value goes back at once. It is journalled before, so that a kill in between undoes
        nothing of theirs. A ceiling that was first read under a cap goes back to where it throttles
        nothing: what was requested before is hidden, and gone.
        """
        self._note(knob, replace(touched, lowered=to), ending)
        try:
            await self.driver.ask("write", self.uuid, knob, touched.last)
        except ActuationError as error:
            if not isinstance(error, DeviceLost):  # it is refused, so nothing was undone
                self._note(knob, touched, ending=True)
            raise
        shown = (await self.shown()).get(knob)
        took, unsure = shown == touched.last, touched.unsure
        if took:
            await self.driver.ask("write", self.uuid, knob, to)
            self.lower |= {} if unsure else {knob: to}
        elif shown is not None:
            self._capped(knob, shown)
        original = None if unsure and not took else touched.found
        state = replace(touched, found=original, lowered=None, unsure=False)
        self._note(knob, state, ending=True)
        return took and not unsure

    def _note(self, knob: str, state: KnobState | None, ending: bool = False) -> None:
        """Journal a knob's state, None where nothing of it is to be restored; see `_save`."""
        knobs = {**self.record.knobs, knob: state}
        self._save(replace(self.record, knobs={k: t for k, t in knobs.items() if t}), ending)

    def _capped(self, knob: str, value: Value) -> None:
        self.caps[knob] = value
        log.warning("event=capped device=%s knob=%s at=%r", self.uuid, knob, value)

    @property
    def _ceilings(self) -> set[str]:
        return set(self.about.get("ceilings", ()))

    def _at_cap(self, knob: str, shown: KnobValues) -> bool:
        """Return whether a knob shows the cap that we know of."""
        return knob in self.caps and shown.get(knob) == self.caps[knob]

    def _state(self, knob: str, original: Value | None) -> KnobState:
        """Return a knob's state before it is written: its original value, and where it goes back to.

        What `restarts` goes back to its own default, which an operator may change meanwhile.
        """
        original = None if self.about.get("restarts") else original
        set_here = self.terms.original.get(knob) if original is None else None
        back = self.terms.failsafe.get(knob, set_here)
        return KnobState(original, back=back, lasts=knob in self.about.get("lasting", ()))

    def in_force(self, knob: str, shown: KnobValues) -> Value | None:
        """Return what a knob is set to: what the hardware tells, else, as under a cap, what we wrote."""
        value, touched = shown.get(knob), self.record.knobs.get(knob)
        return touched.wrote if touched and (value is None or self._at_cap(knob, shown)) else value

    def whole(self, setting: KnobValues) -> KnobValues:
        """Return a setting with every other knob that we wrote at its original setting."""
        return {**dict.fromkeys(self.record.knobs), **setting}

    def original_values(self, shown: KnobValues) -> KnobValues:
        """Return the original values of knobs: a fail-safe, else what is noted, else what they show."""
        noted = self.record.knobs.items()
        return {**shown, **{k: touched.found for k, touched in noted}, **self.terms.failsafe}


def _widening_first(targets: KnobValues, shown: KnobValues) -> list[tuple[str, Any]]:
    """Return the knobs in the order to write them: what gives the device more room comes first."""

    def narrows(item: tuple[str, Any]) -> bool:
        before, target = shown.get(item[0]), item[1]
        numbers = {type(before), type(target)} <= {int, float}
        return target is not None and not (numbers and before < target)

    return sorted(targets.items(), key=narrows)


def _below(less: Value | None, more: Value | None, exempt: Collection[str] = ()) -> bool:
    """Return whether one is at most the other, file by file where possible; a word represents all."""
    low, high = str(less).split(), str(more).split()
    most = max(len(low), len(high))
    try:
        pairs = [*zip(low * (most // len(low)), high * (most // len(high)), strict=True)]
        return all(m in exempt or float(n) <= float(m) for n, m in pairs)
    except (ValueError, ZeroDivisionError):
        return False


def _in_words(error: Exception) -> str:
    """Return an error in words; an unexpected one with its type."""
    return str(error) if isinstance(error, TuningError) else repr(error)
