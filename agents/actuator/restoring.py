"""What root has changed on one device: journalled before it is written, and restored, entry by entry.

An entry is a file, or a driver's call. Sources: drivers/cpufreq/cpufreq.c and drivers/devfreq/devfreq.c of
the kernel: `scaling_max_freq` and `max_freq` show the lowest of all limits, so also those of heat and
firmware, not the one that was written; the files of a policy without an online CPU answer EBUSY, and their
limits come back with the CPU. It is one file, so an audit finds every restore in one place.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from agents.actuator.budget import Membership
from agents.actuator.driver import DriverProcess, Value
from agents.actuator.grants import ActuatorConfig
from agents.actuator.journal import (
    CAPPED,
    OFFLINE,
    PROBING,
    RESTORED,
    SET,
    THEIRS,
    WRITING,
    JournalEntry,
    Record,
    RestoreJournal,
)
from tuner import errors
from tuner.errors import ActuationError, Conflict, DeviceLost, StoreError, TuningError

log = logging.getLogger(__name__)

KnobValues = Mapping[str, Any]
"""Knob to value; None is at its original setting."""
RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""The first wait before what failed is tried again; it doubles up to the longest."""
LOOK_S = 3.0
"""How often what waits is looked at, and a member's floor: a driver may be loaded again."""
LEAST_SLEEP_S, SLEPT = 0.1, " slept "
"""Two clocks that are read one after the other may differ by less."""
LOCKED = tuple(map(os.strerror, (errno.EACCES, errno.EPERM, errno.ENODATA)))
"""What the kernel answers to a write where firmware has locked a limit."""
RESTORE = "run `jouletune actuator restore"
FLOOR = "set [device.budget] floor in actuator.toml to granted values below its original"
PARTS = "its parts are not in force together; leave one of them out"
LATE = "a hung write may still take effect; the device is restored again after that"


class Forgotten(ActuationError, code="actuation"):
    """The driver was restarted and forgot what a trial had set."""


def suspended_s() -> float:
    """Return for how long this machine has slept since it was started, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class DeviceReading(NamedTuple):
    """What a device shows: values by knob; by entry its knob, its value and the most it may show now.

    What is offline is in none of them, what does not answer in `silent`, with the reason.
    """

    values: Mapping[str, Value | None] = {}
    entries: Mapping[str, tuple[str, Value | None, float | None]] = {}
    silent: Mapping[str, str] = {}
    epoch: str = ""

    def differs(self, name: str, value: Value | None) -> bool:
        """Return whether an entry surely shows neither a value nor, where it can be less now, the most."""
        _, shown, most = self.entries[name]
        if None in (shown, value) or shown == value:
            return False
        return not (_below(most, value) and str(shown) == str(most))

    def shows(self, name: str, value: Value | None) -> bool:
        """Return whether an entry surely shows a value."""
        seen = name in self.entries and None not in (value, self.entries[name][1])
        return seen and not self.differs(name, value)


@dataclass(eq=False)
class Restorer:
    """One device's entries. Changes are kept in memory; the disk is for who comes after a crash.

    `boot` names this start of the machine. `paused` says why nothing is written until an operator restores
    the device, `trouble` why it is not back at its original, `unknown` what a damaged journal has left
    unknown. What is restored is never checked against what is offered.
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
    restarted_at: float = -inf
    granted: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    suspended_s: Callable[[], float] = suspended_s

    def __post_init__(self) -> None:
        self.uuid: str = self.about["uuid"]
        self.terms = self.config.granted(self.uuid)
        self.record = Record(self.uuid, self.boot, driver=str(self.about.get("driver") or ""))
        self.ceilings = {*self.about.get("ceilings", ())}
        self.moves: Mapping[str, Sequence[str]] = dict(self.about.get("moves") or ())
        self.seen: list[str] = []

    @property
    def wrong(self) -> str:
        """What is not as it should be."""
        return self.paused or self.trouble or self.unknown

    @property
    def waiting(self) -> dict[str, str]:
        """The entries that go back once their CPU is online, or a cap is over, and their state."""
        entries = self.record.entries.items()
        capped = {n for n, e in entries if (e.state, e.at_rest) == (CAPPED, RESTORED)}
        return {n: e.state for n, e in entries if e.state == OFFLINE or n in capped}

    @property
    def throttled(self) -> str:
        """Which ceilings the kernel holds below what was requested."""
        capped = (e for e in self.record.entries.values() if e.state == CAPPED)
        return ", ".join(sorted({f"a cap holds {e.knob} at {e.at!r}" for e in capped}))

    @property
    def stuck(self) -> bool:
        """Whether an entry is neither back nor waits for that."""
        return any(e.state in (WRITING, PROBING, SET) for e in self.record.entries.values())

    # What the device shows

    async def recall(self) -> None:
        """Take from the journal what is to be restored.

        Where no copy is whole, or it was deleted, that is what actuator.toml names of this device: to the
        floor, the fail-safe, to what it says of the original, else to the driver's default.
        """
        try:
            self.record = self.originals.get(self.uuid) or self.record
        except Exception as error:  # noqa: BLE001 - whatever reads wrong is damaged
            backs = {**self.terms.original, **self.terms.failsafe, **self.terms.floor}
            ours = sorted({*self.terms.grant, *backs} & self.about["ranges"].keys())
            for knob in ours:
                self.record.entries[knob] = JournalEntry(knob, backs.get(knob), backs.get(knob))
            names = ", ".join(ours) or "nothing"
            done = f"the floor, the fail-safe or the driver's default was set: {names}"
            why = f"{_in_words(error)}; its previous value is unknown; {done}"
            self.unknown = f"{why}; check the device, then {RESTORE} {self.uuid}`"
            log.error("event=original_unknown device=%s why=%r", self.uuid, self.unknown)

    async def shown(self) -> DeviceReading:
        """Return what the device shows, asked twice: one wrong answer shall change nothing.

        Raises:
            ActuationError: it is unknown; Forgotten where the driver was restarted in a trial.
        """
        names = [*self.record.entries]
        reads = [await self.driver.ask("read", self.uuid, names) for _ in range(2)]
        if reads[0] != reads[1]:  # a cap moves at any moment
            reads = [reads[1], await self.driver.ask("read", self.uuid, names)]
        if reads[0] != reads[1]:
            raise ActuationError(f"two reads of {self.uuid} differ: {reads[0]}, then {reads[1]}")
        reading = DeviceReading(*reads[1])
        before, slept = self.record.epoch, str(round(self.suspended_s() / LEAST_SLEEP_S))
        self.record.epoch = f"{reading.epoch}{SLEPT}{slept}"
        own, _, slept_then = before.partition(SLEPT)
        if before and (own != reading.epoch or slept_then not in ("", slept)):
            self._lose(reading, own != reading.epoch)
        return reading

    def _lose(self, reading: DeviceReading, reset: bool) -> None:
        """Drop what a new load of the driver, or a resume, has changed: it is no longer ours.

        What is offline comes back after a resume, not after a `reset`. A member's floor is written again.
        """
        kept = dict[str, JournalEntry]()
        for name, entry in self.record.entries.items():
            away = name not in reading.entries
            unsure = not away and None in (reading.entries[name][1], entry.wrote)
            if (away and not reset) or not (away or unsure or reading.differs(name, entry.wrote)):
                kept[name] = entry
            elif self._member(entry):
                kept[name] = replace(entry, wrote=entry.target, state=WRITING)
        if kept != self.record.entries:
            log.warning("event=lost device=%s epoch=%r", self.uuid, self.record.epoch)
            self._keep(kept, ending=True)
            if self.record.setting and not self.record.held:
                raise Forgotten(f"the driver of {self.uuid} was restarted and lost its settings")

    @property
    def stirred(self) -> bool:
        """Whether CPUs came or went, or the machine slept, since this was last asked."""
        before, self.seen = self.seen, [str(round(self.suspended_s() / LEAST_SLEEP_S))]
        for path in self.about.get("watched") or ():
            with suppress(OSError):
                self.seen.append(Path(path).read_text())
        return bool(self.record.entries and before) and before != self.seen

    async def look(self) -> DeviceReading:
        """Read the device. Raises ActuationError where another program has changed it."""
        reading = await self.shown()
        await self._judge(reading, ending=False)
        if any(entry.state == THEIRS for entry in self.record.entries.values()):
            raise ActuationError(f"{self.uuid} is paused: {self.paused}")
        return reading

    async def _judge(self, reading: DeviceReading, *, ending: bool) -> None:
        """Say of every entry what its value means; pause the device where another program set one.

        Ours is what we wrote last; once the device goes back, perhaps after a crash on the way, also what
        the entry was before and what it goes back to. What is below a ceiling that we wrote may be a cap.
        """
        new, low = dict[str, JournalEntry](), dict[str, Any]()
        movers = {entry.knob for entry in self.record.entries.values()} & self.moves.keys()
        # A kill as boost was restored leaves the ceilings open.
        opened = {k for knob in movers for k in self.moves[knob]} & self.ceilings if ending else ()
        for name, entry in self.record.entries.items():
            _, shown, _ = reading.entries.get(name, ("", None, None))
            if entry.state == THEIRS:
                self._theirs(entry, entry.at)
            elif name not in reading.entries:
                offline = name not in reading.silent and entry.state != OFFLINE
                new |= {name: replace(entry, state=OFFLINE)} if offline else {}
            elif entry.state == OFFLINE:  # it is back, perhaps as it was left
                new[name] = replace(entry, state=WRITING)
            elif entry.state == WRITING or None in (shown, entry.wrote):
                continue
            elif reading.shows(name, entry.wrote):
                low |= {name: entry.at} if entry.state == PROBING else {}
                new |= {name: replace(entry, state=entry.at_rest)} if entry.state == CAPPED else {}
            elif ending and entry.state == SET and shown in (entry.original, entry.target):
                continue
            elif entry.knob in self.ceilings and _below(shown, entry.wrote):
                low |= {} if (entry.state, entry.at) == (CAPPED, shown) else {name: shown}
            elif entry.knob not in opened:
                new[name] = self._theirs(entry, shown)
        if new:
            log.warning(
                "event=entries device=%s states=%r", self.uuid, {n: e.state for n, e in new.items()}
            )
            self._keep({**self.record.entries, **new}, ending=True)
        if low:
            await self._probe(low, ending)

    def _theirs(self, entry: JournalEntry, value: Value | None) -> JournalEntry:
        """Pause the device: another program set an entry to a value. Return the entry, left to it."""
        why = f"another program set {entry.knob} to {value!r} instead of {entry.wrote!r}"
        if not self.paused:
            self.paused = f"{why}; stop it; then {RESTORE} {self.uuid}`"
            log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        return replace(entry, state=THEIRS, at=value)

    async def _probe(self, low: Mapping[str, Any], ending: bool) -> None:
        """Write once more what shows less than we wrote, and see whether that takes effect.

        Where it does, another program had lowered it: its value goes back at once, and was journalled
        before, so that a kill in between undoes nothing of it. Else the kernel caps it. An entry that is
        first met below its default shows either a request, which is its original, or a cap: then what was
        requested is hidden, and it goes back to where it throttles nothing.
        """
        before = {name: self.record.entries[name] for name in low}
        probing = {n: replace(e, state=PROBING, at=low[n]) for n, e in before.items()}
        self._keep({**self.record.entries, **probing}, ending)
        for name, entry in probing.items():
            await self.driver.ask("write", self.uuid, name, entry.wrote)
        reading, entries = await self.shown(), {**self.record.entries}
        for name in (n for n in probing if n in entries and n in reading.entries):
            entry, shown = entries[name], reading.entries[name][1]
            first = before[name].state == PROBING and entry.at == entry.original
            if reading.differs(name, entry.wrote):
                original = entry.wrote if first else entry.original
                entries[name] = replace(entry, state=CAPPED, at=shown, original=original)
            elif first:
                entries[name] = replace(entry, state=WRITING, wrote=entry.at)
            else:
                await self.driver.ask("write", self.uuid, name, entry.at)
                entries[name] = self._theirs(entry, entry.at)
        log.warning("event=below device=%s capped=%r", self.uuid, self.throttled)
        self._keep(entries, ending=True)

    # What we do to it

    @property
    def held(self) -> KnobValues:
        """The hold of a past actuator that is in force; empty where it is not, or not sure."""
        same = self.record.held and self.record.boot == self.boot and self.about.get("restarts")
        sure = all(entry.state == SET for entry in self.record.entries.values())
        return dict(self.record.setting) if same and sure else {}

    async def change(self, setting: KnobValues, held: bool = False, again: bool = True) -> None:
        """Journal, write, verify. A failure leaves the rest to the caller.

        `again`: what cannot be read is written whatever we wrote last, for it may be lost; and a service is
        not restarted too soon after the last time. Raises Conflict where it would be.
        """
        reading = await self.look()
        if missing := ", ".join(setting.keys() - reading.values.keys()):
            raise ActuationError(f"{self.uuid} does not report {missing}")
        plans = await self._plans(
            {k: self._back(k, reading) if v is None else v for k, v in setting.items()}
        )
        touched = {k for k, plan in plans.items() if self._differ(k, plan, reading)}
        moved = {k for knob in touched for k in self.moves.get(knob, ())}
        entries, targets = await self._met(touched | moved, reading), dict[str, Any]()
        there = {n: e for n, e in entries.items() if n in reading.entries}
        for name, entry in there.items():
            value = setting.get(entry.knob)
            target = entry.target if value is None else plans[entry.knob][name]
            blind = again and reading.entries[name][1] is None and target is not None
            in_force = (
                entry.state in (SET, CAPPED, RESTORED) and entry.wrote == target and not blind
            )
            if entry.knob in setting and not in_force:
                targets[name] = target
        if again and targets and self.about.get("restarts"):
            wait_s = self.restarted_at + self.config.min_restart_s - self.now()
            if wait_s > 0:
                why = f"{self.uuid} was restarted less than {self.config.min_restart_s:g} s ago"
                raise Conflict(
                    why, hint=f"set it in {wait_s:.0f} s; min_restart_s is in actuator.toml"
                )
            self.restarted_at = self.now()
        rest = {n: e for n, e in there.items() if targets and n not in targets}
        keeps = {n: e.wrote for n, e in rest.items() if e.knob in moved}
        states = {
            n: replace(entries[n], wrote=v, state=WRITING) for n, v in {**keeps, **targets}.items()
        }
        before, whole = self.record.entries.keys(), {**self.record.setting, **setting}
        record = replace(
            self.record, held=held, setting={k: v for k, v in whole.items() if v is not None}
        )
        record.entries = {**entries, **states} if targets else record.entries
        if record != self.record and record.entries:
            self.originals.save(record)
        self.record = record
        if not targets:
            return
        try:
            own = {n: v for n, v in keeps.items() if entries[n].knob in reading.values}
            await self._write(targets, own, reading, stop=True)
        except errors.KnobRefused as error:  # it never took: there is nothing to restore
            left = record.entries.items()
            self._keep({n: e for n, e in left if n in before or e.knob != error.knob})
            raise
        if wrong := ", ".join(await self._verify(targets, keeps)):
            hint = PARTS if len(setting) > 1 else ""
            raise ActuationError(f"{self.uuid} did not apply the setting: {wrong}", hint=hint)
        self._keep(self._outstanding())

    def _back(self, knob: str, reading: DeviceReading) -> Value | None:
        """Return where a knob goes back to instead of its original; None: to that."""
        set_here = self.terms.original.get(knob) if reading.values.get(knob) is None else None
        return self.terms.failsafe.get(knob, set_here)

    async def _plans(self, setting: KnobValues) -> dict[str, dict[str, Any]]:
        """Return the values of the entries of each knob that is set to a value."""
        requested = {knob: value for knob, value in setting.items() if value is not None}
        plans = await self.driver.ask("plan", self.uuid, requested) if requested else {}
        return {knob: dict(plan) for knob, plan in plans.items()}

    def _differ(self, knob: str, plan: KnobValues, reading: DeviceReading) -> bool:
        """Return whether a knob has an entry, or is to get one: a cap may show what is not requested."""
        if knob in self.ceilings or any(e.knob == knob for e in self.record.entries.values()):
            return True
        shown = {name: value for name, value in plan.items() if name in reading.entries}
        return any(reading.entries[n][1] is None or reading.differs(n, v) for n, v in shown.items())

    async def _met(self, knobs: Iterable[str], reading: DeviceReading) -> dict[str, JournalEntry]:
        """Return all entries, with those of these knobs that are not yet among them as they are now.

        A ceiling that is below its default is journalled and written once: see `_probe`.
        """
        names = {n: k for n, (k, *_) in reading.entries.items() if k in knobs}
        new = {n: k for n, k in names.items() if n not in self.record.entries}
        if not new:
            return {**self.record.entries}
        knobs, ranges, low = {*new.values()}, self.about["ranges"], dict[str, Any]()
        backs = await self._plans({k: self._back(k, reading) for k in knobs})
        tops = await self._plans({k: ranges[k][-1] for k in self.ceilings & knobs & ranges.keys()})
        entries = {**self.record.entries}
        for name, knob in new.items():
            shown, lasts = reading.entries[name][1], knob in self.about.get("lasting", ())
            original = None if self.about.get("restarts") else shown
            self.record.originals.setdefault(knob, reading.values.get(knob))
            back, top = backs.get(knob, {}).get(name), tops.get(knob, {}).get(name)
            if top is not None and not reading.differs(name, top):
                original = top  # what was requested is hidden, as while boost is off
            entries[name] = entry = JournalEntry(knob, original, shown, SET, back, lasts)
            if back is None and _below(shown, top) and reading.differs(name, top):
                entry.wrote, entry.state, low[name] = top, PROBING, shown
        if low:
            self.record.entries |= {name: entries[name] for name in low}
            await self._probe(low, ending=False)
        return {**entries, **self.record.entries}

    async def _write(
        self, targets: KnobValues, lazily: KnobValues, reading: DeviceReading, *, stop: bool
    ) -> list[str]:
        """Write entries: those that move others first, and what gives the device more room before the rest.

        `lazily` are written where they show another value, as what a change may have moved: what refuses
        follows it. Without `stop` a refusal is returned in words and stops no other.
        """
        refused, knobs = list[str](), {n: self.record.entries[n].knob for n in (*targets, *lazily)}
        movers = {n: v for n, v in targets.items() if knobs[n] in self.moves}
        others = {**lazily, **{n: v for n, v in targets.items() if n not in movers}}
        for group in (movers, others):
            if group is others and movers and others:
                with suppress(ActuationError):  # it is read once more at the end
                    reading = await self.shown()
            for name, value in _widening_first(group, reading):
                if name in lazily and reading.shows(name, value):
                    continue
                try:
                    self.record.entries[
                        name
                    ].state = WRITING  # what it shows from now on is our doing
                    await self.driver.ask("write", self.uuid, name, value)
                except Exception as error:  # the other entries go back all the same
                    if stop and name not in lazily:
                        raise
                    refused.append(f"{name}: {_in_words(error)}")
        return refused

    async def _verify(self, targets: KnobValues, follow: Iterable[str] = ()) -> list[str]:
        """Note the state of what was written; return in words what surely is not as it should be.

        Before, what was written is put in force where that takes a restart. What is to `follow` a change is
        as it is now; a cap, or a CPU that is offline, is no failure.
        """
        if self.about.get("restarts"):
            await self.driver.ask("commit", self.uuid)
        reading, wrong, entries = await self.shown(), list[str](), {**self.record.entries}
        seen = {n: reading.entries[n][1] for n in follow if n in reading.entries}
        for name, value in {**seen, **targets}.items():
            if name not in entries:  # a new load of the driver forgot it
                continue
            entry = replace(entries[name], wrote=value, at=None)
            entry.state = entry.at_rest
            if name in reading.silent:
                wrong.append(reading.silent[name])
                continue
            if name not in reading.entries:
                entry.state = OFFLINE
            elif reading.differs(name, value):
                shown = reading.entries[name][1]
                if entry.knob not in self.ceilings or not _below(shown, value):
                    label = name if name == entry.knob else f"{entry.knob}: {name}"
                    wrong.append(f"{label} is {shown}, not {value}")
                    continue
                entry.state, entry.at = CAPPED, shown
                log.warning("event=capped device=%s entry=%s at=%r", self.uuid, name, shown)
            entries[name] = entry
        self.record.entries = entries
        return wrong

    def _outstanding(self) -> dict[str, JournalEntry]:
        """Return the entries without those that are back, which no budget caps and nothing moves again."""
        entries = self.record.entries
        altered = {entry.knob for entry in entries.values() if entry.state != RESTORED}
        stay = {k for knob in altered for k in self.moves.get(knob, ())} | {
            *self.record.budget.floor
        }
        return {n: e for n, e in entries.items() if e.state != RESTORED or e.knob in stay}

    async def leave(self, knob: str, why: str) -> None:
        """Pause, and leave a knob as it is where the hardware shows that another program sets it.

        Raises:
            StoreError, ActuationError: it goes back with the others.
        """
        self.paused = f"{why}; stop it, then {RESTORE} {self.uuid}`"
        log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        wrote = self.record.setting.get(knob)
        if wrote is not None and await self.driver.ask("overruled", self.uuid, knob, wrote):
            self._keep({n: e for n, e in self.record.entries.items() if e.knob != knob})

    async def probe(self, knob: str) -> str:
        """Return why a knob is locked, empty where it is not: what it shows is written once more.

        Nothing is written while the device is not at its original, or before that is journalled.
        """
        if self.record.entries:
            return ""
        reading, why = await self.shown(), ""
        entries = await self._met({knob}, reading)
        self._keep({n: replace(e, state=WRITING) for n, e in entries.items()})
        for name, entry in entries.items():
            try:
                await self.driver.ask("write", self.uuid, name, entry.wrote)
            except DeviceLost:
                raise
            except ActuationError as error:
                why = str(error)
        self._keep({})
        return why if any(word in why for word in LOCKED) else ""

    def keep(self) -> None:
        """Write the journal again where it is not as we wrote it. Raises StoreError where it cannot be."""
        if not self.originals.kept(self.record):
            self.originals.save(self.record)

    @property
    def due(self) -> bool:
        """Whether it is time to restore again what did not go back; what is paused is root's."""
        pauses = self.paused and not (self.trouble or self.waiting)
        return bool(self.record.entries) and self.now() >= self.retry_at and not pauses

    @property
    def floor(self) -> dict[str, Any]:
        """Return where a member falls back to; empty where it can be none."""
        floor = self.terms.floor
        return dict(floor) if all(v in self.granted.get(k, ()) for k, v in floor.items()) else {}

    def _member(self, entry: JournalEntry) -> bool:
        """Return whether a budget caps an entry."""
        return entry.knob in self.record.budget.floor

    def clipped(self, setting: KnobValues) -> dict[str, Any]:
        """Return a setting within the cap in force."""
        most = self.record.budget.at_most(self.now(), self.granted)
        over = {k: m for k, m in most.items() if k in setting and not _below(setting[k] or m, m)}
        return {**setting, **over}

    async def clip(self) -> None:
        """Lower what is above the cap in force. Raises TuningError where it cannot be."""
        members = self.record.budget.floor
        last = {k: v for k, v in self.record.setting.items() if k in members}
        if over := {k: v for k, v in self.clipped(last).items() if v != last[k]}:
            log.info("event=lowered_to_cap device=%s cap=%r", self.uuid, over)
            await self.change(over, self.record.held)

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
        entries = self.record.entries
        if not joined:
            reading = await self.look()
            originals = self.original_values(reading)
            for knob, value in member.floor.items():
                if not _below(value, originals[knob] or value):
                    why = f"the floor of {knob}, {value!r}, is above {originals[knob]!r}, its original"
                    raise errors.OutOfRange(f"{self.uuid}: {why}", hint=FLOOR)
            entries = await self._met(member.floor, reading)
        floors = {
            n: v for plan in (await self._plans(member.floor)).values() for n, v in plan.items()
        }
        backs = {
            n: replace(e, back=floors[n], lasts=True) for n, e in entries.items() if n in floors
        }
        # A lower cap needs no disk: `keep` ends what is in force while that is full.
        self._save(replace(self.record, entries={**entries, **backs}, budget=member), ending=joined)
        free = member.floor.keys() - self.record.setting.keys()
        await self.change(dict.fromkeys(free), self.record.held)
        await self.clip()

    async def quit(self) -> None:
        """Leave the budget: its knobs go back to their originals. Raises StoreError, ActuationError."""
        reading, entries = await self.shown(), {**self.record.entries}
        plans = await self._plans(
            {knob: self._back(knob, reading) for knob in self.record.budget.floor}
        )
        for name, entry in entries.items():
            if self._member(entry):
                back, lasts = (
                    plans.get(entry.knob, {}).get(name),
                    entry.knob in self.about.get("lasting", ()),
                )
                state = SET if entry.state == RESTORED else entry.state
                entries[name] = replace(entry, back=back, lasts=lasts, state=state)
        self._save(replace(self.record, entries=entries, budget=Membership()))

    def settle(self) -> None:
        """End a pause: what the device shows now is its original. Raises StoreError."""
        if self.paused and not self.trouble:
            stay = {
                n: e
                for n, e in self.record.entries.items()
                if e.state == OFFLINE or self._member(e)
            }
            self._keep({name: replace(entry, state=WRITING) for name, entry in stay.items()})
        self.paused = self.unknown = ""

    async def restore(self) -> None:
        """Put every entry back, each for itself; what fails, however, is tried again later."""
        self.record.setting, self.record.held, failures = {}, False, list[str]()
        if not self.record.entries:
            return
        late, before = self.driver.lingering, {**self.record.entries}
        if self.record.boot != self.boot:  # what was done in another is gone, but what outlives it
            budget = replace(self.record.budget, revision=0, steps=())
            lasting = {n: replace(e, state=WRITING) for n, e in before.items() if e.lasts}
            self.record = replace(
                self.record, boot=self.boot, epoch="", entries=lasting, budget=budget
            )
        try:
            failures = await self._restore_entries() if self.record.entries else []
            if late and not failures:  # what is done late is our doing
                entries = self.record.entries.items()
                self.record.entries = {n: replace(e, state=WRITING) for n, e in entries}
                failures = [LATE]
            if failures:  # what is on its way is so after a crash, too
                self.originals.save(self.record)
            elif self._outstanding() != before:
                self._keep(self._outstanding())
        except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
            failures.append(_in_words(error))
        previous, self.trouble = self.trouble, "; ".join(failures)
        if not failures:
            self.retry_s, self.retry_at = RETRY_S, self.now() + LOOK_S
            return
        if previous != self.trouble:
            log.error("event=not_restored device=%s why=%r", self.uuid, self.trouble)
        await self.driver.renew()  # the next try asks a fresh process
        self.retry_s = RETRY_S if failures == [LATE] else self.retry_s
        self.retry_at = self.now() + self.retry_s
        self.retry_s = min(LONGEST_RETRY_S, 2.0 * self.retry_s)

    async def _restore_entries(self) -> list[str]:
        """Restore our changes; return in words what did not go. Raises ActuationError."""
        failures, reading = list[str](), DeviceReading()
        await self._expand()
        try:
            reading = await self.shown()
            # What restarts drops only what we set: whatever it shows, nothing of another's is undone.
            if not self.about.get("restarts"):
                await self._judge(reading, ending=True)
        except DeviceLost:
            raise
        except ActuationError as error:  # what cannot be read can still be written
            failures.append(str(error))
        targets, lazily = dict[str, Any](), dict[str, Any]()
        for name, entry in self.record.entries.items():
            # A cap may show what is not asked for: a ceiling is written whatever it shows.
            blind = entry.knob in self.ceilings and entry.state != RESTORED
            moves = entry.knob in self.moves and not reading.shows(name, entry.target)
            if entry.state not in (THEIRS, OFFLINE) and name not in self.waiting:
                (targets if blind or moves else lazily)[name] = entry.target
        failures += await self._write(targets, lazily, reading, stop=False)
        return failures or await self._verify({**targets, **lazily})

    async def _expand(self) -> None:
        """Make entries of files of those that name a knob: they are of 0.2.0, or of a lost journal."""
        named = [
            e for n, e in self.record.entries.items() if n == e.knob and self.about.get("files")
        ]
        for entry in named:
            values = (entry.original, entry.back)
            plans = [(await self.driver.ask("plan", self.uuid, {entry.knob: v})) for v in values]
            originals, backs = (dict(plan[entry.knob]) for plan in plans)
            del self.record.entries[entry.knob]
            for name, value in originals.items():
                back = None if entry.back is None else backs[name]
                self.record.entries[name] = JournalEntry(
                    entry.knob, value, value, WRITING, back, entry.lasts
                )

    def _save(self, record: Record, ending: bool = False) -> None:
        """Have a record on the disk, then in memory; an `ending` needs no disk. Raises StoreError."""
        with suppress(*([StoreError] if ending else [])):
            self.originals.save(record)
        self.record = record

    def _keep(self, entries: Mapping[str, JournalEntry], ending: bool = False) -> None:
        """Have these entries, and none else, in the record; see `_save`."""
        if not entries:
            log.info("event=original device=%s", self.uuid)
        knobs = {entry.knob for entry in entries.values()}
        originals = {knob: value for knob, value in self.record.originals.items() if knob in knobs}
        self._save(replace(self.record, entries={**entries}, originals=originals), ending)

    def in_force(self, knob: str, reading: DeviceReading) -> Any:  # noqa: ANN401 - None or a value
        """Return what a knob is set to: what we set where its entries are as we wrote them, or capped."""
        value = self.record.setting.get(knob)
        names = [name for name, (of, *_) in reading.entries.items() if of == knob]
        for name in names:
            entry = self.record.entries.get(name)
            capped = entry and entry.state == CAPPED and reading.entries[name][1] == entry.at
            if (
                not entry
                or entry.state == WRITING
                or (reading.differs(name, entry.wrote) and not capped)
            ):
                names = []
        return reading.values.get(knob) if value is None or not names else value

    def whole(self, setting: KnobValues) -> KnobValues:
        """Return a setting with every other knob that we wrote at its original setting."""
        return {**dict.fromkeys(e.knob for e in self.record.entries.values()), **setting}

    def original_values(self, reading: DeviceReading) -> KnobValues:
        """Return the original values of knobs: a fail-safe, else what is noted, else what they show."""
        return {**reading.values, **self.record.originals, **self.terms.failsafe}


def _widening_first(targets: KnobValues, reading: DeviceReading) -> list[tuple[str, Any]]:
    """Return entries in the order to write them: what gives the device more room comes first."""

    def narrows(item: tuple[str, Any]) -> bool:
        before, target = reading.entries.get(item[0], ("", None))[1], item[1]
        return target is not None and not (_below(before, target) and before != target)

    return sorted(targets.items(), key=narrows)


def _below(less: Value | float | None, more: Value | None) -> bool:
    """Return whether all numbers of one are at most all of the other; a word is not."""
    try:
        return max(map(float, str(less).split())) <= min(map(float, str(more).split()))
    except ValueError:
        return False


def _in_words(error: Exception) -> str:
    """Return an error in words; an unexpected one with its type."""
    return str(error) if isinstance(error, TuningError) else repr(error)
