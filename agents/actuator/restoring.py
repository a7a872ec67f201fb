"""What root has changed on one device: journalled before it is written, and put back.

Sources: drivers/cpufreq/cpufreq.c and drivers/devfreq/devfreq.c of the kernel: `scaling_max_freq` and
`max_freq` show the lowest of all limits, so also those of heat and firmware, not the one that was written.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from agents.actuator.driver import DriverProcess, Value
from agents.actuator.grants import ActuatorConfig
from agents.actuator.journal import KnobState, Record, RestoreJournal
from tuner.errors import ActuationError, DeviceLost, KnobRefused, StoreError, TuningError

log = logging.getLogger(__name__)

Wanted = Mapping[str, Any]
"""Knob to value; None is as it was found."""
RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""The first wait before what failed is tried again; it doubles up to the longest."""
RESTORE = "run `jouletune actuator restore"
LATE = "a write that hung may still be done; it is put back again after that"


class Forgotten(ActuationError, code="actuation"):
    """The driver was restarted and forgot what we set. Nothing is in force any more."""


@dataclass(eq=False)
class Restorer:
    """One device's knobs. What was changed is known in memory; the disk is for who comes after a crash.

    `boot` names this start of the machine. `paused` says why nothing is written until somebody restores
    the device, `trouble` why it is not back at its original, `unknown` what a damaged journal has left
    unknown, `caps` what the kernel holds ceilings at, below what we wrote. What is put back is never
    checked against what is offered.
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

    def __post_init__(self) -> None:
        self.uuid: str = self.about["uuid"]
        self.terms = self.config.granted(self.uuid)
        self.record = self._fresh()

    def _fresh(self, **knobs: KnobState) -> Record:
        """Return a record of this boot."""
        return Record(self.uuid, self.boot, "", knobs, str(self.about.get("driver", "")))

    @property
    def wrong(self) -> str:
        """What is not as it should be."""
        return self.paused or self.trouble or self.unknown

    def recall(self) -> None:
        """Take from the journal what is to be put back.

        Where no copy is whole, that is what actuator.toml names of this device: to the fail-safe, to
        what it says of the original, else to the driver's default.
        """
        try:
            self.record = self.originals.get(self.uuid) or self.record
            if not self.record.driver:  # 0.1.0 took the rest from its configuration and its driver
                states = {k: self._state(k, t.found) for k, t in self.record.knobs.items()}
                for knob, touched in self.record.knobs.items():
                    touched.back, touched.lasts = states[knob].back, states[knob].lasts
        except Exception as error:  # noqa: BLE001 - whatever reads wrong is damaged
            named = {*self.terms.grant, *self.terms.original, *self.terms.failsafe}
            ours = sorted(named & self.about["ranges"].keys())
            self.record = self._fresh(**{k: self._state(k, None) for k in ours})
            done = f"the fail-safe or the driver's default was set: {', '.join(ours) or 'nothing'}"
            why = f"{_in_words(error)}; what it stood at before is not known, {done}"
            self.unknown = f"{why}; look, then {RESTORE} {self.uuid}`"
            log.error("event=original_unknown device=%s why=%r", self.uuid, self.unknown)

    async def shown(self) -> dict[str, Value | None]:
        """Return what the knobs stand at, asked twice: one wrong answer shall change nothing.

        Raises:
            ActuationError: they cannot be told; Forgotten where the driver was restarted.
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
            self._forget("the driver was restarted")
            raise Forgotten(f"the driver of {self.uuid} was restarted and lost its settings")
        return shown

    async def look(self) -> dict[str, Value | None]:
        """Read the device. Raises ActuationError where it is not as we left it."""
        shown = await self.shown()
        if await self._others(shown, ending=False):
            raise ActuationError(f"{self.uuid} is paused: {self.paused}")
        return shown

    async def change(self, setting: Wanted) -> None:
        """Journal, write, verify. What fails leaves the rest to whoever called."""
        shown = await self.look()
        # A lock that nobody can read may be lost: it is written whenever it is asked for.
        blind = {k for k, v in setting.items() if shown.get(k, v) is None and v is not None}
        todo = {k: v for k, v in setting.items() if k in blind or self.in_force(k, shown) != v}
        if not todo:
            return
        unread = [knob for knob in todo if knob not in shown]
        if unread:
            raise ActuationError(f"{self.uuid} does not report {', '.join(unread)}")
        for knob in [knob for knob in todo if knob not in self.record.knobs]:
            await self._know_original(knob, shown[knob])
        before, record = self.record, deepcopy(self.record)
        for knob, value in todo.items():
            touched = record.knobs.setdefault(knob, self._state(knob, shown[knob]))
            touched.wrote, touched.pending = value, True
        self._save(record)
        targets = {k: record.knobs[k].last for k in todo}
        for knob, target in _widening_first(targets, shown):
            try:
                await self.driver.ask("write", self.uuid, knob, target)
            except KnobRefused:
                if knob not in before.knobs:  # it never took: there is nothing to put back
                    record.knobs.pop(knob)
                    self.originals.save(record)
                raise
        wrong = await self._differing(targets)
        if wrong:
            raise ActuationError(f"{self.uuid} did not take the setting: {', '.join(wrong)}")
        for knob in todo:
            record.knobs[knob].pending = False
        self.originals.save(record)

    async def again(self) -> None:
        """Write the locks that nobody can read once more: a resume has lost them. Raises ActuationError."""
        shown = await self.look()
        for knob, touched in self.record.knobs.items():
            if shown.get(knob) is None and touched.wrote is not None:
                await self.driver.ask("write", self.uuid, knob, touched.wrote)

    async def leave(self, knob: str, why: str) -> None:
        """Pause, and leave a knob as it is where the hardware shows that another program sets it.

        Raises:
            StoreError, ActuationError: it goes back with the others.
        """
        self.paused = f"{why}; stop it, then {RESTORE} {self.uuid}`"
        log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        touched = self.record.knobs.get(knob)
        if touched and await self.driver.ask("overruled", self.uuid, knob, touched.wrote):
            self.record.knobs.pop(knob)
            self.originals.save(self.record)

    async def probe(self, knob: str) -> str:
        """Return why a knob is locked, empty where it is not: what it shows is written once more.

        Nothing is written while the device is not at its original, or before that is journalled.
        """
        if self.record.knobs:
            return ""
        shown = await self.shown()
        self._save(self._fresh(**{knob: self._state(knob, shown.get(knob))}))
        why = str(await self.driver.ask("probe", self.uuid, knob))
        self._forget("a knob was probed")
        return why

    def keep(self) -> None:
        """Write the journal again where it is not as we wrote it. Raises StoreError where it cannot be."""
        if not self.originals.kept(self.record):
            self.originals.save(self.record)

    @property
    def due(self) -> bool:
        """Whether it is time to put back again what did not go back; what is paused is root's."""
        waits = self.now() < self.retry_at or (self.paused and not self.trouble)
        return bool(self.record.knobs and not waits)

    def settle(self) -> None:
        """End a pause: what the device shows now is its original. Raises StoreError."""
        if self.paused and not self.trouble:
            self._forget("an operator settled it")
        self.paused = self.unknown = ""

    async def put_back(self) -> None:
        """Put every knob we wrote back, each for itself; what fails, however, is tried again later."""
        if not self.record.knobs:
            return
        failures: list[str] = []
        late = self.driver.lingering
        if self.record.boot != self.boot:  # what was done in another is gone with it
            lasting = {k: t for k, t in self.record.knobs.items() if t.lasts}
            self.record = self._fresh(**lasting)
        try:
            if self.record.knobs:
                failures = await self._written_back() or [LATE] * late
            if failures:  # what is pending is so after a crash, too
                self.originals.save(self.record)
            elif not self.paused:
                self._done()
        except Forgotten:
            failures = []
        except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
            failures.append(_in_words(error))
        said, self.trouble = self.trouble, "; ".join(failures)
        if failures:
            if said != self.trouble:
                log.error("event=not_restored device=%s why=%r", self.uuid, self.trouble)
            await self.driver.close()  # the next try asks a fresh process
            self.retry_s = RETRY_S if failures == [LATE] else self.retry_s
        if failures or self.waits:
            self.retry_at = self.now() + self.retry_s
            self.retry_s = min(LONGEST_RETRY_S, 2.0 * self.retry_s)

    async def _written_back(self) -> list[str]:
        """Put back what is ours; return in words what did not go. Raises ActuationError."""
        failures: list[str] = []
        shown: dict[str, Value | None] = {}
        try:
            shown = await self.shown()
        except (DeviceLost, Forgotten):
            raise
        except ActuationError as error:  # what cannot be read can still be written
            failures.append(str(error))
        targets: dict[str, Any] = {}
        others = await self._others(shown, ending=True)
        for knob, touched in self.record.knobs.items():
            back: Any = touched.original
            theirs = others.get(knob, [None])
            if back is not None and theirs != [None]:
                pairs = zip(theirs, _by_file(back, " ".join(map(str, theirs))), strict=True)
                back = _joined([b if t is None else t for t, (b, _) in pairs])
            waits = self._at_cap(knob, shown) and touched.wrote is None and not touched.pending
            if None in theirs and not waits:
                targets[knob] = back
        for knob, target in _widening_first(targets, shown):
            try:
                # A cap may show what is not asked for: a ceiling is written whatever it shows.
                if target is None or shown.get(knob) != target or knob in self._ceilings:
                    self.record.knobs[knob].pending = True  # what it shows from now on is our doing
                    await self.driver.ask("write", self.uuid, knob, target)
            except Exception as error:  # noqa: BLE001 - the other knobs go back all the same
                failures.append(f"{knob}: {_in_words(error)}")
        return failures or await self._differing(targets)

    async def _differing(self, targets: Wanted) -> list[str]:
        """Return in words which knobs surely do not stand where they should; a cap is no such thing."""
        now, wrong = await self.shown(), list[str]()
        for knob, target in targets.items():
            value = now.get(knob)
            self.caps.pop(knob, None)
            if None in (value, target) or value == target:
                continue
            if knob in self._ceilings and all(
                s == t or _lower(s, t) for s, t in _by_file(value, target)
            ):
                self.caps[knob] = value
                log.warning(
                    "event=capped device=%s knob=%s at=%r below=%r", self.uuid, knob, value, target
                )
            else:
                wrong.append(f"{knob} is {value!r}, not {target!r}")
        return wrong

    def _done(self) -> None:
        """Drop the journal but for what was put back and is still capped. Raises StoreError."""
        waiting = {k: t for k, t in self.record.knobs.items() if k in self.caps}
        if not waiting:
            return self._forget("it is back")
        waiting = {k: replace(t, wrote=None, pending=False) for k, t in waiting.items()}
        if waiting != self.record.knobs:
            self._save(replace(self.record, knobs=waiting))

    @property
    def waits(self) -> bool:
        """Whether all was put back, and what is not at its original is capped."""
        states = self.record.knobs.items()
        return bool(states) and all(
            k in self.caps and t.wrote is None and not t.pending for k, t in states
        )

    @property
    def throttled(self) -> str:
        """Which ceilings the kernel holds below what was asked for."""
        return ", ".join(f"a cap holds {k} at {v!r}" for k, v in self.caps.items())

    def _save(self, record: Record, *, ending: bool = False) -> None:
        """Have a record on the disk, then in memory; what is restored does not wait for a disk.

        Raises:
            StoreError: the disk refuses, and it is not `ending`.
        """
        try:
            self.originals.save(record)
        except StoreError as error:
            if not ending:
                raise
            log.error("event=journal_unwritten device=%s why=%r", self.uuid, str(error))
        self.record = record

    def _forget(self, why: str) -> None:
        """Drop the journal: the device is as it was found. Raises StoreError."""
        log.info("event=original device=%s why=%r", self.uuid, why)
        self._save(self._fresh())
        self.retry_s, self.caps = RETRY_S, {}

    async def _others(self, shown: Wanted, *, ending: bool) -> dict[str, list[float | str | None]]:
        """Return, file by file, what somebody else set knobs to since we wrote them; pause for those.

        Ours is what we wrote last; once the device goes back, perhaps after a crash on the way, also
        what the knob was before and what it goes back to. What is below a ceiling may be a cap.
        """
        found: dict[str, list[float | str | None]] = {}
        for knob, touched in list(self.record.knobs.items()):
            value, last, lowered = shown.get(knob), touched.last, touched.lowered
            if value is None or (touched.pending and lowered is None):
                continue
            if value == last:
                self.caps.pop(knob, None)
            known = {
                file for v in (last, touched.found, touched.original) for (file,) in _by_file(v)
            }
            pairs = _by_file(value, last)
            if lowered is not None:  # killed while it asked: what had been lowered is written down
                pairs = [(w if s == x else s, x) for s, x, w in _by_file(value, last, lowered)]
            back = ending and lowered is None
            strange = [s != x and not (back and s in known) for s, x in pairs]
            below = all(_lower(s, x) for (s, x), odd in zip(pairs, strange, strict=True) if odd)
            if self._at_cap(knob, shown):
                continue
            if any(strange) and below and knob in self._ceilings:
                lower = _joined([s for s, _ in pairs])
                strange = await self._lowered(deepcopy(self.record), knob, lower, strange, ending)
            if any(strange):
                found[knob] = [s if x else None for (s, _), x in zip(pairs, strange, strict=True)]
                why = f"another program set {knob} to {value!r} instead of {last!r}; stop it"
                self._pause(f"{why}; then {RESTORE} {self.uuid}`")
        return found

    async def _lowered(
        self, record: Record, knob: str, lower: Value, below: Sequence[bool], ending: bool
    ) -> list[bool]:
        """Write ours once more, and return which files somebody had lowered: those where it takes effect.

        They get the lower value back at once, which is journalled before, so that a kill in between
        undoes nothing of theirs. The others are capped.
        """
        touched = record.knobs[knob]
        touched.lowered = lower
        self._save(record, ending=ending)
        pairs = _by_file(lower, touched.last)
        ours = _joined([x if b else s for (s, x), b in zip(pairs, below, strict=True)])
        await self.driver.ask("write", self.uuid, knob, ours)
        again = (await self.shown()).get(knob)
        now = [a for a, _ in _by_file(again, lower)]
        theirs = [b and a == x for (_, x), a, b in zip(pairs, now, below, strict=True)]
        rows = list(zip(pairs, theirs, below, strict=True))
        if any(theirs):
            back = _joined([s if t or not b else x for (s, x), t, b in rows])
            await self.driver.ask("write", self.uuid, knob, back)
        elif again is not None:
            self.caps[knob] = again
            log.warning("event=capped device=%s knob=%s at=%r", self.uuid, knob, again)
        if touched.unsure:
            top = self.about["ranges"][knob][-1]
            touched.found = _joined([top if b and not t else s for (s, _), t, b in rows])
            theirs = [False] * len(theirs)
        touched.lowered, touched.unsure = None, False
        self._save(record, ending=ending)
        return theirs

    async def _know_original(self, knob: str, value: Value | None) -> None:
        """Have in the record what a ceiling was found at, where a cap may hide it.

        Where the greatest granted value takes no effect, it is a cap: what was asked for is hidden, and
        the knob goes back to where it throttles nobody.
        """
        top = self.granted.get(knob, ())[-1:]
        if knob not in self._ceilings or value is None or knob in self.terms.failsafe or not top:
            return
        below = [_lower(s, t) for s, t in _by_file(value, top[0])]
        if any(below):
            state = replace(self._state(knob, value), wrote=top[0], pending=False, unsure=True)
            record = replace(deepcopy(self.record), knobs={**self.record.knobs, knob: state})
            await self._lowered(record, knob, value, below, ending=False)

    def _pause(self, why: str) -> None:
        if not self.paused:
            self.paused = why
            log.error("event=paused device=%s why=%r", self.uuid, why)

    @property
    def _ceilings(self) -> Collection[str]:
        return set(self.about.get("ceilings", ()))

    def _at_cap(self, knob: str, shown: Wanted) -> bool:
        """Return whether a knob shows the cap that we know of."""
        return knob in self.caps and shown.get(knob) == self.caps[knob]

    def _state(self, knob: str, found: Value | None) -> KnobState:
        """Return a knob's state before it is written: what it was found at, and where it goes back to."""
        set_here = self.terms.original.get(knob) if found is None else None
        back = self.terms.failsafe.get(knob, set_here)
        return KnobState(found, back=back, lasts=knob in self.about.get("lasting", ()))

    def in_force(self, knob: str, shown: Wanted) -> Value | None:
        """Return what a knob is set to: what the hardware tells, else, as under a cap, what we wrote."""
        value, touched = shown.get(knob), self.record.knobs.get(knob)
        return touched.wrote if touched and (value is None or self._at_cap(knob, shown)) else value

    def whole(self, setting: Wanted) -> Wanted:
        """Return a setting with every other knob that we wrote as it was found."""
        return {**dict.fromkeys(self.record.knobs), **setting}

    def found(self, shown: Wanted) -> Wanted:
        """Return what the knobs were found at: a fail-safe, else what is noted, else what they show."""
        noted = self.record.knobs.items()
        return {**shown, **{k: touched.found for k, touched in noted}, **self.terms.failsafe}


def _widening_first(targets: Wanted, shown: Wanted) -> list[tuple[str, Any]]:
    """Return the knobs in the order to write them: what gives the device more room comes first."""

    def narrows(item: tuple[str, Any]) -> bool:
        before, target = shown.get(item[0]), item[1]
        numbers = {type(before), type(target)} <= {int, float}
        return target is not None and not (numbers and before < target)

    return sorted(targets.items(), key=narrows)


def _by_file(*values: Value | None) -> list[tuple[Any, ...]]:
    """Return what values say, file by file; one word stands for every file."""
    split = [[_number(word) for word in str(value).split() or [""]] for value in values]
    most = max(map(len, split))
    return list(zip(*(words * (most // len(words)) for words in split), strict=False))


def _number(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def _joined(files: Sequence[float | str]) -> Value:
    """Return what files say as one value, as a driver tells it."""
    whole = [int(f) if isinstance(f, float) and f.is_integer() else f for f in files]
    return whole[0] if len({*whole}) == 1 else " ".join(map(str, whole))


def _lower(shown: float | str, ours: float | str) -> bool:
    return isinstance(shown, float) and isinstance(ours, float) and shown < ours


def _in_words(error: Exception) -> str:
    """Return an error in words; one that nobody foresaw with its kind."""
    return str(error) if isinstance(error, TuningError) else repr(error)
