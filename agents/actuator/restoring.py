"""Root's changes to one device: journalled before they are written, and restored entry by entry.

An entry is a file, or a driver call. Sources: drivers/cpufreq/cpufreq.c and drivers/devfreq/devfreq.c of
the kernel. `scaling_max_freq` and `max_freq` show the lowest of all limits, including those of heat and
firmware, not the written one. The files of a policy without an online CPU answer EBUSY, and their limits
come back with the CPU. All restores are in this one file so that an audit finds them.
"""

import logging
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from agents.actuator.driver import SLEPT, DriverProcess, Value, contested
from agents.actuator.grants import ActuatorConfig
from agents.actuator.journal import (
    CAPPED,
    OFFLINE,
    PROBING,
    SET,
    THEIRS,
    WRITING,
    JournalEntry,
    Membership,
    Record,
    RestoreJournal,
)
from tuner import errors
from tuner.errors import ActuationError, Conflict, DeviceLost, StoreError, TuningError

log = logging.getLogger(__name__)

KnobValues = Mapping[str, Any]
"""Knob to value; None is the knob's original setting."""
RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""The first wait before a failed restore is tried again, in seconds; it doubles up to the longest."""
LOOK_S = 3.0
"""The period of checks of waiting entries and a member's floor, in seconds: the driver may be reloaded."""
LEAST_SLEEP_S = 0.1
"""A difference between two clocks below this, in seconds, is only the time between their reads."""
RESTORE = "run `jouletune actuator restore"
FLOOR = "set [device.budget] floor in actuator.toml to granted values below its original"
PARTS = "its parts are not in force together; leave one of them out"
LATE = "a hung write may still take effect; the device is restored again after that"


class Forgotten(ActuationError, code="actuation"):
    """The driver was restarted and has lost a trial's setting."""


def suspended_s() -> float:
    """Return the time that this machine has been suspended since it booted, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class DeviceReading(NamedTuple):
    """The values of a device: `values` by knob; by entry its knob, value and present maximum.

    An offline entry is in neither. An entry that does not answer is in `silent`, with the reason.
    """

    values: Mapping[str, Value | None] = {}
    entries: Mapping[str, tuple[str, Value | None, float | None]] = {}
    silent: Mapping[str, str] = {}
    epoch: str = ""

    def value(self, name: str) -> Value | None:
        """Return the value that an entry shows; None if it shows none."""
        return self.entries.get(name, ("", None, None))[1]

    def shows(self, name: str, value: Value | None) -> bool | None:
        """Return whether an entry shows `value` or a lower present maximum; None if unknown."""
        _, shown, most = self.entries.get(name, ("", None, None))
        if None in (shown, value):
            return None
        return shown == value or (_below(most, value) and str(shown) == str(most))


@dataclass(eq=False)
class Restorer:
    """The entries of one device. Changes are kept in memory; the disk serves the restore after a crash.

    `boot` identifies this boot of the machine. Three fields are reasons, or empty: `paused` that nothing
    is written until an operator restores the device, `trouble` that it is not back at its original,
    `unknown` that a damaged journal lost the original. `taken` returns the files that other devices have
    changed, each with its device. A restored value need not be an offered one.
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
    reset_at: float = -inf
    granted: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    suspended_s: Callable[[], float] = suspended_s
    taken: Callable[[str], Mapping[str, str]] = lambda _: {}

    def __post_init__(self) -> None:
        self.uuid: str = self.about["uuid"]
        self.terms = self.config.granted(self.uuid)
        self.record = Record(self.uuid, self.boot, driver=str(self.about.get("driver") or ""))
        self.ceilings = {*self.about.get("ceilings", ())}
        self.hidden = self.ceilings | {*self.about.get("staged", ())}
        self.moves: Mapping[str, Sequence[str]] = dict(self.about.get("moves") or ())
        self.seen: list[str] = []
        self.verified: dict[str, Value | None] = {}  # our values that were last seen in force

    @property
    def wrong(self) -> str:
        """Return the reason that the device needs attention; empty if it does not."""
        return self.paused or self.trouble or self.unknown

    @property
    def waiting(self) -> dict[str, str]:
        """Return the entries to restore once their CPU is online or a cap is over, each with its state.

        Those that a knob in force has taken away come back when that is restored.
        """
        entries, moved = self.record.entries.items(), self._moved(self.record.setting)
        off = {n: e.state for n, e in entries if e.state == OFFLINE and e.knob not in moved}
        return off | {n: e.state for n, e in entries if e.state == CAPPED and e.wrote == e.target}

    def _moved(self, knobs: Iterable[str]) -> set[str]:
        """Return the knobs whose entries these knobs change, too."""
        return {k for knob in knobs for k in self.moves.get(knob, ())}

    @property
    def throttled(self) -> str:
        """Return the ceilings that the kernel caps below the requested value, as a text."""
        capped = (e for e in self.record.entries.values() if e.state == CAPPED)
        return ", ".join(sorted({f"a cap holds {e.knob} at {e.at!r}" for e in capped}))

    @property
    def stuck(self) -> bool:
        """Return whether an entry is neither restored nor waiting."""
        return not {n for n, e in self.record.entries.items() if not e.restored} <= {*self.waiting}

    # Readings

    async def recall(self) -> None:
        """Load the entries to restore from the journal.

        Without an intact copy, or after a deletion, the entries are this device's knobs in actuator.toml.
        Each goes to the floor, else the fail-safe, else the configured original, else the driver's
        default.
        """
        try:
            self.record = self.originals.get(self.uuid) or self.record
        except Exception as error:  # noqa: BLE001 - any failure to read means damage
            backs = {**self.terms.original, **self.terms.failsafe, **self.terms.floor}
            ours = sorted({*self.terms.grant, *backs} & self.about["ranges"].keys())
            for knob in ours:
                self.record.entries[knob] = JournalEntry(knob, backs.get(knob), backs.get(knob))
            names = ", ".join(ours) or "nothing"
            done = f"the floor, the fail-safe or the driver's default was set: {names}"
            why = f"{_in_words(error)}; its previous value is unknown; {done}"
            self.unknown = f"{why}; check the device, then {RESTORE} {self.uuid}`"
            log.error("event=original_unknown device=%s why=%r", self.uuid, self.unknown)

    async def describe(self) -> None:
        """Find the device again: a value, such as boost off, may have hidden what it offers."""
        with suppress(ActuationError):
            await self.driver.renew()
            for about in await self.driver.ask("describe"):
                offered = about.get("ranges", {}).keys()
                if about["uuid"] == self.uuid and offered >= self.about["ranges"].keys():
                    self.about = about

    async def shown(self) -> DeviceReading:
        """Return a reading that a second one has confirmed: one wrong answer must not change anything.

        Raises:
            ActuationError: the reads fail or differ; Forgotten if the driver was restarted in a trial.
        """
        names = [*self.record.entries]
        reads = [await self.driver.ask("read", self.uuid, names) for _ in range(2)]
        if reads[0] != reads[1]:  # a cap may change between two reads
            reads = [reads[1], await self.driver.ask("read", self.uuid, names)]
        if reads[0] != reads[1]:
            raise ActuationError(f"two reads of {self.uuid} differ: {reads[0]}, then {reads[1]}")
        reading = DeviceReading(*reads[1])
        before, slept = self.record.epoch.partition(SLEPT), self.suspended_s() / LEAST_SLEEP_S
        self.record.epoch = f"{reading.epoch}{SLEPT}{round(slept)}"
        own, _, perhaps = self.record.epoch.partition(SLEPT)
        stale = before[0] != own or before[2] not in ("", perhaps) or self._was_reset(reading)
        if any(before) and stale:
            self._lose(reading, before[0] != own)
        return reading

    def _was_reset(self, reading: DeviceReading) -> bool:
        """Return whether all that we changed and can read shows what a reset of the device leaves.

        A kill may have followed the restore of some. Another program's return to the default looks the
        same: it counts as a reset once in CONTEST_S. A write in progress, and all that it may move, shows
        nothing.
        """
        after, entries = dict(self.about.get("resets") or ()), self.record.entries.items()
        busy = self._moved(e.knob for _, e in entries if e.state == WRITING)
        sure = [(n, e) for n, e in entries if e.state == SET and e.knob not in busy and n in after]
        ours = {n: e.target for n, e in sure if e.wrote != after[n]}
        lost = {n for n in ours if reading.shows(n, after[n])}
        shown = lost and all(reading.shows(n, ours[n]) for n in ours.keys() - lost)
        if not shown or contested(self.reset_at, self.now()):
            return False
        self.reset_at = self.now()
        return True

    def _lose(self, reading: DeviceReading, reset: bool) -> None:
        """Drop the entries that a reload of the driver (`reset`) or a resume has changed.

        Offline entries outlive a resume. An entry that cannot be read, like a lock, may be lost or not: it
        is written again, with the entries that it moves. A member's floor is written again, too.

        Raises:
            Forgotten: entries were lost in a trial.
        """
        kept, entries = dict[str, JournalEntry](), self.record.entries.items()
        moved = self._moved(e.knob for n, e in entries if reading.shows(n, e.wrote))
        blind = {
            n for n, e in entries if n in reading.entries and reading.shows(n, e.wrote) is None
        }
        kinds = {e.knob for n, e in entries if n in blind and (not reset or e.state == WRITING)}
        kinds |= self._moved(kinds)
        for name, entry in entries:
            away, unsure = name not in reading.entries, name in blind
            # A write that a kill cut short, or a file that is back, may show any earlier value.
            cut = not (away or unsure) and entry.state in (WRITING, PROBING, OFFLINE)
            other = not reading.shows(name, entry.wrote)
            # A cap may hide a ceiling that the sleep has kept; a staged one may be shown.
            hidden = not (away or reset) and entry.knob in self.hidden and other
            if (entry.knob in kinds and not away) or hidden:
                kept[name] = replace(entry, state=WRITING)
            elif cut or (away and (not reset or entry.knob in moved)) or not other:
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
        """Return whether a watched file changed, or the machine slept, since the previous call."""
        before, self.seen = self.seen, [str(round(self.suspended_s() / LEAST_SLEEP_S))]
        for path in self.about.get("watched") or ():
            with suppress(OSError, ValueError):
                self.seen.append(Path(path).read_text())
        return bool(before) and before != self.seen

    async def look(self) -> DeviceReading:
        """Return a reading of the device. Raises ActuationError if another program has changed it."""
        reading = await self.shown()
        await self._judge(reading, ending=False)
        if any(entry.state == THEIRS for entry in self.record.entries.values()):
            raise ActuationError(f"{self.uuid} is paused: {self.paused}")
        return reading

    async def _judge(self, reading: DeviceReading, *, ending: bool) -> None:
        """Update the state of each entry from a reading; pause the device if another program changed one.

        Our last value is not a change by another program. While `ending`, neither are the original and
        the target: a crash may have interrupted the restore. A value below a ceiling that we wrote may be a
        cap: see `_probe`.
        """
        new, low = dict[str, JournalEntry](), dict[str, Any]()
        # A kill between the restores of boost and of the ceilings leaves those open.
        moved = self._moved(entry.knob for entry in self.record.entries.values())
        opened = moved & self.hidden if ending else ()
        for name, entry in self.record.entries.items():
            shown = reading.value(name)
            set_here = entry.state == SET and not entry.restored
            halfway = (entry.original, entry.target) if set_here else ()
            if entry.state == THEIRS:
                self._theirs(entry, entry.at)
            elif name not in reading.entries:
                offline = name not in reading.silent and entry.state != OFFLINE
                new |= {name: replace(entry, state=OFFLINE)} if offline else {}
            elif entry.state == OFFLINE:  # it is back, perhaps with its former value
                new[name] = replace(entry, state=WRITING)
            elif entry.state == WRITING or reading.shows(name, entry.wrote) is None:
                continue
            elif reading.shows(name, entry.wrote):
                low |= {name: entry.at} if entry.state == PROBING else {}
                new |= {name: replace(entry, state=SET)} if entry.state == CAPPED else {}
            elif ending and any(reading.shows(name, value) for value in halfway):
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
        """Pause the device, as another program set an entry to `value`. Return the entry's new state."""
        why = f"another program set {entry.knob} to {value!r} instead of {entry.wrote!r}"
        if not self.paused:
            self.paused = f"{why}; stop it; then {RESTORE} {self.uuid}`"
            log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        return replace(entry, state=THEIRS, at=value)

    async def _probe(self, low: Mapping[str, Any], ending: bool, *, met: bool = False) -> None:
        """Write entries that show less than our value once more, to learn the cause.

        If the write takes effect, another program had lowered the entry: its value is restored at once,
        and was journalled before, so that a kill cannot lose it. Else the kernel caps the entry. An entry
        first read below its default shows either its requested value, which is its original, or a cap. A
        cap hides the requested value, so the entry then goes back to a value that throttles nothing.

        A cap that ended while the journal was written must not count as another program's value, so entries
        are read again first. One that shows our value is left as it was; one that is first `met` and shows
        another value is forgotten, for its original is not certain.
        """
        before = {name: self.record.entries[name] for name in low}
        probing = {n: replace(e, state=PROBING, at=low[n]) for n, e in before.items()}
        self._keep({**self.record.entries, **probing}, ending)
        now, left = await self.shown(), dict[str, JournalEntry]()
        for name, was in before.items():
            ended = was.state != PROBING and now.shows(name, was.wrote)
            if name not in self.record.entries or (now.value(name) != low[name] if met else ended):
                left[name] = was
                del probing[name]
            else:
                await self.driver.ask("write", self.uuid, name, was.wrote)
        reading, kept = await self.shown(), self.record.entries.items()
        entries = {n: left.get(n, e) for n, e in kept if not (met and n in left)}
        for name in (n for n in probing if n in entries and n in reading.entries):
            entry, shown = entries[name], reading.value(name)
            first = before[name].state == PROBING and entry.at == entry.original
            if reading.shows(name, entry.wrote) is False:
                original = entry.wrote if first else entry.original
                entries[name] = replace(entry, state=CAPPED, at=shown, original=original)
            elif first:
                entries[name] = replace(entry, state=WRITING, wrote=entry.at)
            else:
                await self.driver.ask("write", self.uuid, name, entry.at)
                entries[name] = self._theirs(entry, entry.at)
        log.warning("event=below device=%s capped=%r", self.uuid, self.throttled)
        self._keep(entries, ending=True)

    # Changes, restores and budgets

    @property
    def held(self) -> KnobValues:
        """Return an earlier actuator's hold that is surely in force in this boot; empty if none is."""
        same = self.record.held and self.record.boot == self.boot and self.about.get("restarts")
        sure = all(entry.state == SET for entry in self.record.entries.values())
        return dict(self.record.setting) if same and sure else {}

    async def change(self, setting: KnobValues, held: bool = False, again: bool = True) -> None:
        """Journal a setting, write it and verify it. On failure the caller restores.

        With `again`, a knob that cannot be read is written even if our last value is the same, for it may
        be lost; a restart of a service within `min_restart_s` of its last one then raises Conflict.
        """
        if self.about.get("files") and not self.record.entries:
            await self.driver.renew()  # another program may have changed which files there are
        reading = await self.look()
        if missing := ", ".join(setting.keys() - reading.values.keys()):
            raise ActuationError(f"{self.uuid} does not report {missing}")
        plans = await self._plans(setting)
        entries, targets = await self._met(setting, reading), dict[str, Any]()
        for name, entry in entries.items():
            if entry.knob not in setting or name not in reading.entries:
                continue
            target = plans.get(entry.knob, {}).get(name, entry.target)
            lost = entry.state not in (SET, CAPPED) or entry.wrote != target
            if lost or (again and reading.value(name) is None and target is not None):
                targets[name] = target
        moved = self._moved(entries[name].knob for name in targets)
        # An entry that follows a knob that we have changed, like a governor's number, shows no original.
        led = self._moved(e.knob for e in entries.values() if e.wrote != e.original)
        entries |= await self._met(moved - (led - self.about["ranges"].keys()), reading)
        if again and targets and self.about.get("restarts"):
            self._limit_restarts()
        follow = {n: e for n, e in entries.items() if e.knob in moved and n in reading.entries}
        keeps = {n: e.wrote for n, e in follow.items() if n not in targets}
        due = {
            n: replace(entries[n], wrote=v, state=WRITING) for n, v in {**keeps, **targets}.items()
        }
        before, whole = self.record.entries, {**self.record.setting, **setting}
        record = replace(self.record, held=held, entries={**entries, **due} if targets else before)
        record.setting = {k: v for k, v in whole.items() if v is not None}
        if record != self.record and record.entries:
            self._save(record)
        self.record = record
        if not targets:
            return
        try:
            own = {n: v for n, v in keeps.items() if entries[n].knob in reading.values}
            await self._write({**own, **targets}, targets, reading, strict=True)
        except errors.KnobRefused as error:  # another file of the knob may have been written
            reading, left = await self.shown(), self.record.entries
            kinds = {error.knob} | self._moved([error.knob])
            for n, e in [*left.items()]:
                new = e.knob in kinds and n in reading.entries.keys() - before.keys()
                same = reading.value(n) == e.original or reading.shows(n, e.original)
                if new and same:
                    left[n] = replace(e, wrote=e.target, state=SET)
            self._keep(self._outstanding())
            raise
        if wrong := ", ".join(await self._verify(targets, keeps)):
            hint = PARTS if len(setting) > 1 else ""
            raise ActuationError(f"{self.uuid} did not apply the setting: {wrong}", hint=hint)
        self._keep(self._outstanding())

    def _limit_restarts(self) -> None:
        """Raise Conflict if the service was restarted less than `min_restart_s` ago."""
        wait_s = self.restarted_at + self.config.min_restart_s - self.now()
        if wait_s > 0:
            why = f"{self.uuid} was restarted less than {self.config.min_restart_s:g} s ago"
            hint = f"set it in {wait_s:.0f} s; min_restart_s is in actuator.toml"
            raise Conflict(why, hint=hint)
        self.restarted_at = self.now()

    def _back(self, knob: str, reading: DeviceReading) -> Value | None:
        """Return the value to restore in place of a knob's original; None restores the original."""
        set_here = self.terms.original.get(knob) if reading.values.get(knob) is None else None
        return self.terms.failsafe.get(knob, set_here)

    async def _plans(self, setting: KnobValues) -> dict[str, dict[str, Any]]:
        """Return the values of the entries of each knob in a setting, without those set to None."""
        requested = {knob: value for knob, value in setting.items() if value is not None}
        return dict(await self.driver.ask("plan", self.uuid, requested)) if requested else {}

    async def _aimed(
        self, entries: Mapping[str, JournalEntry], floor: KnobValues, reading: DeviceReading
    ) -> dict[str, JournalEntry]:
        """Return entries with their targets: a budget's floor, else the fail-safe, else the original."""
        knobs = {entry.knob for entry in entries.values()}
        plans = await self._plans({k: floor.get(k, self._back(k, reading)) for k in knobs})
        lasting = {*floor, *self.about.get("lasting", ())}
        return {
            name: replace(e, back=plans.get(e.knob, {}).get(name), lasts=e.knob in lasting)
            for name, e in entries.items()
        }

    async def _met(self, knobs: Iterable[str], reading: DeviceReading) -> dict[str, JournalEntry]:
        """Return all entries, after adding those missing for `knobs`, with present values as originals.

        A ceiling below its default is journalled and written once: see `_probe`.
        """
        names = {n: k for n, (k, *_) in reading.entries.items() if k in knobs}
        new = {n: k for n, k in names.items() if n not in self.record.entries}
        if not new:
            return {**self.record.entries}
        ranges, met, low = self.about["ranges"], dict[str, JournalEntry](), dict[str, Any]()
        tops = await self._plans(
            {k: ranges[k][-1] for k in self.ceilings & {*new.values()} & ranges.keys()}
        )
        for name, knob in new.items():
            shown, top = reading.value(name), tops.get(knob, {}).get(name)
            self.record.originals.setdefault(knob, reading.values.get(knob))
            original = None if self.about.get("restarts") else shown
            if top is not None and reading.shows(name, top) is not False:
                original = top  # the requested value is hidden, as while boost is off
            elif _below(shown, top):
                low[name] = shown
            met[name] = JournalEntry(knob, original, shown, SET)
        met = await self._aimed(met, self.record.budget.floor, reading)
        self._claim(met)
        low = {name: shown for name, shown in low.items() if met[name].back is None}
        for name in low:
            met[name].wrote, met[name].state = tops[met[name].knob][name], PROBING
        entries = {**self.record.entries, **met}
        if low:
            self.record.entries |= {name: entries[name] for name in low}
            await self._probe(low, ending=False, met=True)
            reloaded = self.record.epoch.partition(SLEPT)[0] != reading.epoch.partition(SLEPT)[0]
            if reloaded or low.keys() - self.record.entries.keys():
                raise ActuationError(f"{self.uuid} changed as it was read", hint="try again")
        return {**entries, **self.record.entries}

    async def _write(
        self, values: KnobValues, always: Container[str], reading: DeviceReading, *, strict: bool
    ) -> list[str]:
        """Write entries: those that move others first, then those that widen limits, then the rest.

        An entry that shows its value already is written only if it is in `always`. With `strict` the
        refusal of an entry in `always` is raised. Other refusals stop no write; they are returned as texts.
        """
        refused = list[str]()
        movers = {name for name in values if self.record.entries[name].knob in self.moves}
        for moves in (True, False):
            group = {n: v for n, v in values.items() if (n in movers) == moves}
            for name, value in _widening_first(group, reading):
                entry = self.record.entries.get(name)
                if not entry or (entry.state == OFFLINE and name not in reading.entries):
                    continue  # lost by a reload, or away still
                if name not in always and reading.shows(name, value):
                    continue
                try:
                    entry.state = WRITING  # from now on any value that it shows counts as ours
                    await self.driver.ask("write", self.uuid, name, value)
                except Exception as error:  # an error must not stop the other restores
                    if strict and name in always:
                        raise
                    refused.append(f"{name}: {_in_words(error)}")
            if moves and group:
                with suppress(ActuationError):  # `_verify` reads again
                    reading = await self.shown()
        return refused

    async def _verify(self, targets: KnobValues, follow: Iterable[str] = ()) -> list[str]:
        """Update the states of written entries; return as texts those that show a wrong value.

        A service is restarted first. Caps, offline CPUs, and all values in `follow` are accepted.
        """
        if self.about.get("restarts"):
            await self.driver.ask("commit", self.uuid)
        reading, wrong, entries = await self.shown(), list[str](), {**self.record.entries}
        seen = {n: reading.value(n) for n in follow if n in reading.entries}
        for name, value in {**seen, **targets}.items():
            if name not in entries:  # a reload of the driver has lost it
                continue
            entry = replace(entries[name], wrote=value, at=None, state=SET)
            if name in reading.silent:
                wrong.append(reading.silent[name])
                continue
            if name not in reading.entries:
                entry.state = OFFLINE
            elif reading.shows(name, value) is False:
                shown = reading.value(name)
                # An entry that still shows our previous value is not capped: the write had no effect.
                stuck = shown in (entries[name].wrote, self.verified.get(name))
                if stuck or entry.knob not in self.ceilings or not _below(shown, value):
                    label = name if name == entry.knob else f"{entry.knob}: {name}"
                    wrong.append(f"{label} is {shown}, not {value}")
                    continue
                entry.state, entry.at = CAPPED, shown
                self.verified.pop(name, None)
                log.warning("event=capped device=%s entry=%s at=%r", self.uuid, name, shown)
            else:
                self.verified[name] = value
            entries[name] = entry
        self.record.entries = entries
        return wrong

    def _outstanding(self) -> dict[str, JournalEntry]:
        """Return the entries to keep: not restored, in a budget, or moved by a knob not yet restored."""
        entries = self.record.entries
        moved = self._moved(e.knob for e in entries.values() if not e.restored)
        stay = moved | {*self.record.budget.floor}
        return {n: e for n, e in entries.items() if not e.restored or e.knob in stay}

    async def leave(self, knob: str, why: str) -> None:
        """Pause the device, and leave a knob alone if the hardware shows that another program sets it.

        Raises:
            StoreError, ActuationError: the knob is restored with the others.
        """
        self.paused = f"{why}; stop it, then {RESTORE} {self.uuid}`"
        log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        wrote = self.record.setting.get(knob)
        if wrote is not None and await self.driver.ask("overruled", self.uuid, knob, wrote):
            self._keep({n: e for n, e in self.record.entries.items() if e.knob != knob})

    def keep(self) -> None:
        """Write the journal again if it is not as we wrote it. Raises StoreError."""
        if not self.originals.kept(self.record):
            self.originals.save(self.record)

    @property
    def due(self) -> bool:
        """Return whether to retry a failed restore now; a pause without a failure is left to root."""
        pauses = self.paused and not (self.trouble or self.waiting)
        return bool(self.record.entries) and self.now() >= self.retry_at and not pauses

    @property
    def floor(self) -> dict[str, Any]:
        """Return the floor of a member of a budget; empty if the device cannot be a member."""
        floor = self.terms.floor
        return dict(floor) if all(v in self.granted.get(k, ()) for k, v in floor.items()) else {}

    def _member(self, entry: JournalEntry) -> bool:
        """Return whether a budget caps the entry."""
        return entry.knob in self.record.budget.floor

    def clipped(self, setting: KnobValues) -> dict[str, Any]:
        """Return a setting, lowered to the cap in force."""
        most = self.record.budget.at_most(self.now(), self.granted)
        over = {k: m for k, m in most.items() if k in setting and not _below(setting[k] or m, m)}
        return {**setting, **over}

    async def admit(self, member: Membership) -> DeviceReading:
        """Return the reading of a device that joins a budget; an empty reading if it has joined before.

        Raises:
            Conflict, OutOfRange: no floor, one above the original, or an old revision.
            ActuationError: the device cannot be read.

        Nothing is changed after an error.
        """
        if not member.floor:
            raise Conflict(f"{self.uuid} has no granted floor", hint=FLOOR)
        if self.record.budget.floor:
            if member.revision < self.record.budget.revision:
                why = f"{self.uuid} has revision {self.record.budget.revision} of its caps already"
                raise Conflict(why, hint="give a later one")
            return DeviceReading()
        reading = await self.look()
        originals = self.original_values(reading)
        for knob, value in member.floor.items():
            if not _below(value, originals[knob] or value):
                why = f"the floor of {knob}, {value!r}, is above {originals[knob]!r}, its original"
                raise errors.OutOfRange(f"{self.uuid}: {why}", hint=FLOOR)
        return reading

    async def cap(self, member: Membership, reading: DeviceReading) -> None:
        """Journal an admitted budget to keep to from now on; the caller lowers the values.

        Raises:
            Conflict, StoreError, ActuationError: the old values may be in force; end trial and hold.
        """
        joined = bool(self.record.budget.floor)
        entries = await self._met(member.floor, reading)
        members = {n: e for n, e in entries.items() if e.knob in member.floor}
        members = await self._aimed(members, member.floor, DeviceReading())
        # A lower cap needs no disk: on a full one, `keep` ends the trial and the hold.
        self._save(
            replace(self.record, entries={**entries, **members}, budget=member), ending=joined
        )
        free = member.floor.keys() - self.record.setting.keys()
        await self.change(dict.fromkeys(free), self.record.held)

    async def quit(self) -> None:
        """Leave a budget: the originals are the targets again. Raises StoreError, ActuationError."""
        entries = await self._aimed(self.record.entries, {}, await self.shown())
        self._save(replace(self.record, entries=entries, budget=Membership()))

    def settle(self) -> None:
        """End a pause: the values that the device shows now are its original. Raises StoreError."""
        if self.paused and not self.trouble:
            entries = self.record.entries.items()
            stay = [(n, e) for n, e in entries if e.state == OFFLINE or self._member(e)]
            self._keep({name: replace(entry, state=WRITING) for name, entry in stay})
        self.paused = self.unknown = ""

    async def restore(self) -> None:
        """Restore every entry separately; a failure is retried later."""
        self.record.setting, self.record.held, failures = {}, False, list[str]()
        if not self.record.entries:
            return
        late, before = self.driver.lingering, {**self.record.entries}
        if self.record.boot != self.boot:  # a reboot clears all values but the lasting ones
            budget = replace(self.record.budget, revision=0, steps=())
            lasting = {n: replace(e, state=WRITING) for n, e in before.items() if e.lasts}
            self.record = replace(
                self.record, boot=self.boot, epoch="", entries=lasting, budget=budget
            )
        try:
            failures = await self._restore_entries() if self.record.entries else []
            if late and not failures:  # a late effect is due to us
                entries = self.record.entries.items()
                self.record.entries = {n: replace(e, state=WRITING) for n, e in entries}
                failures = [LATE]
            if failures:  # after a crash these are still on their way
                self.originals.save(self.record)
            elif self._outstanding() != before:
                self._keep(self._outstanding())
        except Exception as error:  # noqa: BLE001 - any failure is tried again
            failures.append(_in_words(error))
        failures = failures if self.record.entries else []  # a reload may have lost all
        previous, self.trouble = self.trouble, "; ".join(failures)
        if not failures:
            self.retry_s, self.retry_at = RETRY_S, self.now() + LOOK_S
            return
        if previous != self.trouble:
            log.error("event=not_restored device=%s why=%r", self.uuid, self.trouble)
        await self.driver.renew()  # the next try uses a new process
        self.retry_s = RETRY_S if failures == [LATE] else self.retry_s
        self.retry_at = self.now() + self.retry_s
        self.retry_s = min(LONGEST_RETRY_S, 2.0 * self.retry_s)

    async def _restore_entries(self) -> list[str]:
        """Restore our changes; return the failures as texts. Raises ActuationError."""
        failures, reading, whole = list[str](), DeviceReading(), set[str]()
        entries = self.record.entries.items()
        for knob in [n for n, e in entries if n == e.knob and self.about.get("files")]:
            try:
                await self._expand(knob)
            except DeviceLost:
                raise
            except Exception as error:  # noqa: BLE001 - it must not stop the other restores
                failures.append(f"{knob}: {_in_words(error)}")
                whole.add(knob)
        try:
            reading = await self.shown()
            # A restart drops only our values, so it cannot undo another program's.
            if not self.about.get("restarts"):
                await self._judge(reading, ending=True)
        except DeviceLost:
            raise
        except ActuationError as error:  # an unreadable entry can still be written
            failures.append(str(error))
        entries = self.record.entries.items()
        due = {n: e for n, e in entries if e.state != THEIRS and self.waiting.get(n) != CAPPED}
        # A cap may hide the requested value, and a staged one be shown: these are always written.
        always = {n for n, e in due.items() if e.knob in self.hidden and not e.restored}
        targets = {n: e.target for n, e in due.items() if n not in whole}
        failures += await self._write(targets, always, reading, strict=False)
        return failures or await self._verify(targets)

    async def _expand(self, knob: str) -> None:
        """Replace the entry of a whole knob, of 0.2.0 or of a lost journal, by those of its files."""
        old = self.record.entries[knob]
        both = (old.original, old.back)
        plans = [await self.driver.ask("plan", self.uuid, {knob: value}) for value in both]
        whole, back = (plan[knob] for plan in plans)
        if [*whole] != [knob]:
            del self.record.entries[knob]
            for n, v in whole.items():
                kept = None if old.back is None else back[n]
                self.record.entries[n] = JournalEntry(old.knob, v, v, back=kept, lasts=old.lasts)

    def _claim(self, names: Iterable[str]) -> None:
        """Raise Conflict if another device has changed one of these files: nvpmodel and clocks share some.

        Nothing is awaited between the last check and the change of our record, which others read.
        """
        taken = self.taken(self.uuid)
        for name in names:
            if other := taken.get(os.path.realpath(name)):
                raise Conflict(f"{name} is set by {other}", hint=f"release {other} first")

    def _save(self, record: Record, ending: bool = False) -> None:
        """Save a record, then keep it in memory. Raises Conflict, and StoreError unless `ending`."""
        self._claim(record.entries.keys() - self.record.entries.keys())
        with suppress(*([StoreError] if ending else [])):
            self.originals.save(record)
        self.record = record

    def _keep(self, entries: Mapping[str, JournalEntry], ending: bool = False) -> None:
        """Replace the record's entries by these; see `_save`."""
        if not entries:
            log.info("event=original device=%s", self.uuid)
        knobs = {entry.knob for entry in entries.values()}
        originals = {knob: value for knob, value in self.record.originals.items() if knob in knobs}
        self._save(replace(self.record, entries={**entries}, originals=originals), ending)

    def in_force(self, knob: str, reading: DeviceReading) -> Any:  # noqa: ANN401 - None or a value
        """Return a knob's value: ours if its entries are as we wrote them or capped, else the reading."""
        value, ours = self.record.setting.get(knob), list[bool]()
        for name in (name for name, (of, *_) in reading.entries.items() if of == knob):
            entry = self.record.entries.get(name)
            capped = entry and entry.state == CAPPED and reading.value(name) == entry.at
            sure = (
                entry and entry.state != WRITING and reading.shows(name, entry.wrote) is not False
            )
            ours.append(bool(capped or sure))
        return value if value is not None and ours and all(ours) else reading.values.get(knob)

    def whole(self, setting: KnobValues) -> KnobValues:
        """Return a setting with every other offered knob that we wrote set to its original (None)."""
        ours = {entry.knob for entry in self.record.entries.values()} & self.about["ranges"].keys()
        return {**dict.fromkeys(ours), **setting}

    def original_values(self, reading: DeviceReading) -> KnobValues:
        """Return the original values of all knobs: the fail-safe, else the journal's, else the reading."""
        return {**reading.values, **self.record.originals, **self.terms.failsafe}


def _widening_first(targets: KnobValues, reading: DeviceReading) -> list[tuple[str, Any]]:
    """Return entries in the order to write them: those that widen the device's limits come first."""

    def narrows(item: tuple[str, Any]) -> bool:
        before, target = reading.value(item[0]), item[1]
        return target is not None and not (_below(before, target) and before != target)

    return sorted(targets.items(), key=narrows)


def _below(less: Value | float | None, more: Value | None) -> bool:
    """Return whether each number of one is at most each number of the other; False for words."""
    try:
        return max(map(float, str(less).split())) <= min(map(float, str(more).split()))
    except ValueError:
        return False


def _in_words(error: Exception) -> str:
    """Return an error as a text; an unexpected one with its type."""
    return str(error) if isinstance(error, TuningError) else repr(error)
