"""What root has changed on one device: journalled before it is written, and put back."""

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from agents.actuator.driver import DriverProcess, Value
from agents.actuator.grants import ActuatorConfig
from agents.actuator.journal import KnobState, Record, RestoreJournal
from tuner.errors import ActuationError, DeviceLost, KnobRefused, TuningError

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
    unknown. What is put back is never checked against what is offered.
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

    def __post_init__(self) -> None:
        self.uuid: str = self.about["uuid"]
        self.terms = self.config.granted(self.uuid)
        self.record = Record(self.uuid, self.boot)

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
        except Exception as error:  # noqa: BLE001 - whatever reads wrong is damaged
            named = {*self.terms.grant, *self.terms.original, *self.terms.failsafe}
            ours = sorted(named & self.about["ranges"].keys())
            self.record = Record(self.uuid, self.boot, knobs={k: KnobState(None) for k in ours})
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
        shown, epoch = first = await self.driver.ask("read", self.uuid)
        if first != (again := await self.driver.ask("read", self.uuid)):
            raise ActuationError(f"two reads of {self.uuid} differ: {first}, then {again}")
        if not self.record.knobs or not self.record.epoch:
            self.record.epoch = epoch
        elif self.record.epoch != epoch:
            self._forget("the driver was restarted")
            raise Forgotten(f"the driver of {self.uuid} was restarted and lost its settings")
        return shown

    async def look(self) -> dict[str, Value | None]:
        """Read the device. Raises ActuationError where it is not as we left it."""
        shown = await self.shown()
        if any(self._foreign(knob, value, ending=False) for knob, value in shown.items()):
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
        before, record = self.record, deepcopy(self.record)
        for knob, value in todo.items():
            touched = record.knobs.setdefault(knob, KnobState(shown[knob]))
            touched.wrote, touched.pending = value, True
        self.originals.save(record)
        self.record = record
        targets = {k: self._back(k) if v is None else v for k, v in todo.items()}
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
        try:
            if self.record.boot == self.boot:  # what was done in another is gone with it
                failures = await self._written_back() or [LATE] * late
            if failures:  # what is pending is so after a crash, too
                self.originals.save(self.record)
            elif not self.paused:
                self._forget("it is back")
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
        ours = (k for k in self.record.knobs if not self._foreign(k, shown.get(k), ending=True))
        targets = {knob: self._back(knob) for knob in ours}
        for knob, target in _widening_first(targets, shown):
            try:
                if target is None or shown.get(knob) != target:
                    self.record.knobs[knob].pending = True  # what it shows from now on is our doing
                    await self.driver.ask("write", self.uuid, knob, target)
            except Exception as error:  # noqa: BLE001 - the other knobs go back all the same
                failures.append(f"{knob}: {_in_words(error)}")
        return failures or await self._differing(targets)

    async def _differing(self, targets: Wanted) -> list[str]:
        """Return in words which knobs surely do not stand where they should."""
        now = await self.shown()
        pairs = [(k, now.get(k), target) for k, target in targets.items()]
        return [f"{k} is {n!r}, not {t!r}" for k, n, t in pairs if None not in (n, t) and n != t]

    def _forget(self, why: str) -> None:
        """Drop the journal: the device is as it was found. Raises StoreError."""
        log.info("event=original device=%s why=%r", self.uuid, why)
        self.originals.save(found := Record(self.uuid, self.boot))
        self.record, self.retry_s = found, RETRY_S

    def _foreign(self, knob: str, shown: Value | None, *, ending: bool) -> bool:
        """Return whether somebody else changed a knob since we wrote it, and pause the device if so.

        Ours is what we wrote last; once the device goes back, perhaps after a crash on the way, also
        what the knob was before and what it goes back to, file by file where it has several.
        """
        touched = self.record.knobs.get(knob)
        if shown is None or touched is None or touched.pending:
            return False
        back = self._back(knob)
        last = back if touched.wrote is None else touched.wrote
        ours = " ".join(map(str, (last, touched.found, back))).split()
        if shown == last or (ending and {*str(shown).split()} <= {*ours}):
            return False
        if not self.paused:
            why = f"another program set {knob} to {shown!r} instead of {last!r}; stop it"
            self.paused = f"{why}; then {RESTORE} {self.uuid}`"
            log.error("event=paused device=%s why=%r", self.uuid, self.paused)
        return True

    def _back(self, knob: str) -> Value | None:
        """Return what a knob that we wrote goes back to; None is the driver's own default."""
        found = self.terms.failsafe.get(knob, self.record.knobs[knob].found)
        return self.terms.original.get(knob) if found is None else found

    def in_force(self, knob: str, shown: Wanted) -> Value | None:
        """Return what a knob stands at: what the hardware tells, else what we wrote last."""
        value, touched = shown.get(knob), self.record.knobs.get(knob)
        return touched.wrote if value is None and touched else value

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


def _in_words(error: Exception) -> str:
    """Return an error in words; one that nobody foresaw with its kind."""
    return str(error) if isinstance(error, TuningError) else repr(error)
