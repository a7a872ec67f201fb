"""What the actuator knows of one device, and rules over it that touch nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.drivers import Value
from agents.grants import Granted
from agents.hand import Described
from agents.originals import Record, Touched

Wanted = Mapping[str, Value | None]
"""Knob to value; None is as it was found."""
RETRY_S = 1.0
"""The first wait before a device that did not go back is tried again; it doubles up to a minute."""
LONGEST_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One connection of an agent. Two are never equal."""

    number: int
    who: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A confirmed setting, by what study it is held, and until when on the boot clock."""

    setting: Wanted
    study: str
    revision: int
    until: float


@dataclass(slots=True, eq=False)
class Slot:
    """One device: what may be done to it, what is done, and for whom.

    `paused` says why nothing is written until the actuator is restarted, `trouble` why it is not back
    at its original. `heard` is when its agent last said anything.
    """

    device: Described
    terms: Granted
    allowed: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    record: Record | None = None
    owner: Peer | None = None
    heard: float = 0.0
    trial_until: float | None = None
    hold: Hold | None = None
    paused: str = ""
    trouble: str = ""
    retry_s: float = RETRY_S
    retry_at: float = 0.0

    @property
    def level(self) -> str:
        """By what right the device is set as it is."""
        return "trial" if self.trial_until is not None else "hold" if self.hold else "original"

    def back(self, knob: str, touched: Touched) -> Value | None:
        """Return what a knob goes back to; None is the driver's own default."""
        if knob in self.terms.failsafe:
            return self.terms.failsafe[knob]
        return self.terms.original.get(knob) if touched.found is None else touched.found

    def foreign(self, knob: str, shown: Value | None, *, ending: bool) -> bool:
        """Return whether somebody else changed a knob since we wrote it.

        Ours is what we wrote last; once the device goes back, perhaps after a crash on the way, also
        what the knob was before and what it goes back to.
        """
        touched = self.record.knobs.get(knob) if self.record else None
        if shown is None or touched is None or touched.pending:
            return False
        back = self.back(knob, touched)
        last = back if touched.written[-1] is None else touched.written[-1]
        return shown not in (touched.found, back, *touched.written) if ending else shown != last

    def in_force(self, knob: str, shown: Wanted) -> Value | None:
        """Return what a knob stands at: what the hardware tells, else what we wrote last."""
        value = shown.get(knob)
        touched = self.record.knobs.get(knob) if self.record else None
        return touched.written[-1] if value is None and touched else value

    def whole(self, setting: Wanted) -> Wanted:
        """Return a setting with every other knob that we wrote as it was found."""
        return {**dict.fromkeys(self.record.knobs if self.record else ()), **setting}


def among(value: Value, known: tuple[Value | None, ...]) -> bool:
    """Return whether a value is one of those known; true is not 1 here."""
    return any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in known)


def differs(shown: Value | None, target: Value | None) -> bool:
    """Return whether a knob surely does not stand where it should."""
    return shown is not None and target is not None and shown != target


def widening_first(targets: Wanted, shown: Wanted) -> list[tuple[str, Value | None]]:
    """Return the knobs in the order to write them: what gives the device more room comes first."""

    def narrows(item: tuple[str, Value | None]) -> bool:
        before, target = shown.get(item[0]), item[1]
        if target is None:
            return False
        return before is None or not before < target  # type: ignore[operator]

    return sorted(targets.items(), key=narrows)
