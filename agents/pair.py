"""A device and the workload on it, set and described as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from agents.attached import Attached, Pulse
from tuner.core import (
    ActuationError,
    Clock,
    ConfigError,
    Device,
    DeviceLost,
    Metric,
    Part,
    Quantities,
    Setting,
    Space,
    TuningError,
    render_setting,
)


@dataclass(frozen=True)
class Pair:
    """A device with, or without, a workload beside it.

    Raises:
        ConfigError: the two run on different clocks, so nothing could be measured over both.
    """

    device: Attached
    workload: Attached | None = None

    def __post_init__(self) -> None:
        own = self.device.clock
        if self.workload is not None and own is not None and self.workload.clock is not own:
            raise ConfigError(
                f"{self.device.name} runs on simulated time, {self.workload.name} does not",
                hint="leave the workload out, or choose a real device",
            )

    @property
    def sides(self) -> Mapping[Part, Attached]:
        """The sides there are, the device first."""
        if self.workload is None:
            return {Part.DEVICE: self.device}
        return {Part.DEVICE: self.device, Part.WORKLOAD: self.workload}

    @property
    def clock(self) -> Clock | None:
        """The time both run on, None for the host's."""
        return self.device.clock

    @property
    def settle_s(self) -> float:
        """How long a change takes until it shows, in seconds."""
        return max(side.settle_s for side in self.sides.values())

    @property
    def space(self) -> Space:
        """Every combination of the sides' settings."""
        spaces = [side.space for side in self.sides.values()]
        knobs = tuple(knob for space in spaces for knob in space.knobs)
        if not any(space.only for space in spaces):
            return Space(knobs)
        return Space(knobs, tuple(_products(spaces)))

    @property
    def quantities(self) -> Quantities:
        """What the metrics mean, by name."""
        return {m.name: m.quantity for m in self.metrics}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What can be measured over both; where both list a metric, the workload's counts."""
        return tuple({m.name: m for side in self.sides.values() for m in side.metrics}.values())

    @property
    def cannot(self) -> Mapping[str, str]:
        """What neither side can set or measure, and why."""
        offered = {m.name for m in self.metrics} | {k.name for k in self.space.knobs}
        reasons = {k: v for side in self.sides.values() for k, v in side.cannot.items()}
        return {name: why for name, why in reasons.items() if name not in offered}

    @property
    def pulse(self) -> Callable[[], Pulse] | None:
        """How to ask what runs for its pulse, None where it tells none."""
        return (self.workload or self.device).pulse

    @property
    def crowded(self) -> Callable[[int, float], Pulse] | None:
        """How to ask it for its pulse once it is crowded, None where it cannot be asked that."""
        return (self.workload or self.device).crowded

    def source(self, metric: str) -> str:
        """Return in words where a metric comes from: the side that lists it, the workload first."""
        sides = list(self.sides.values())[::-1]
        listing = [side for side in sides if any(m.name == metric for m in side.metrics)]
        side = (listing or sides)[0]
        if metric == "cpu_time_ms":
            return f"the CPU accounting of {side.name}"
        return side.source or f"the meter of {side.name}"

    def describe(self, id: str, agent: str, versions: Mapping[str, str], at: datetime) -> Device:
        """Return the pair as the tuner knows it."""
        runs = self.workload or self.device
        return Device(
            id=id,
            kind=self.device.kind,
            board=self.device.board,
            driver=self.device.version,
            agent=agent,
            workload=runs.name,
            workload_version=runs.version,
            space=self.space,
            metrics=self.metrics,
            cannot=self.cannot,
            versions=versions,
            seen_at=at,
        )

    def read(self) -> Setting:
        """Return what is in force on both sides. Raises ActuationError."""
        return {k: v for side in self.sides.values() for k, v in side.actuator.read().items()}

    def read_parts(self) -> Mapping[Part, Setting]:
        """Return what is in force, side by side. Raises ActuationError."""
        return {part: dict(side.actuator.read()) for part, side in self.sides.items()}

    def apply(self, setting: Setting) -> None:
        """Put a whole setting in force, in the safe order, or leave everything as it was.

        Towards a slower device the workload goes first, so that it never asks more of the device
        than the device was set up for; towards a faster one the device goes first.

        Raises:
            InvalidInput: the setting is not in the space; nothing was changed.
            ActuationError: a side could not be set or reads back otherwise; what was applied has been
                undone, or the message says what could not be.
        """
        self.space.check(setting)
        before = self.read_parts()
        wanted = {part: _knobs(side, setting) for part, side in self.sides.items()}
        touched: list[Part] = []
        try:
            for part in self._order(before[Part.DEVICE], wanted[Part.DEVICE]):
                touched.append(part)
                self._set(part, wanted[part])
        except TuningError as cause:
            undone = self.restore({part: before[part] for part in reversed(touched)})
            text = f"cannot set {render_setting(setting)}: {cause.message}"
            kind = DeviceLost if isinstance(cause, DeviceLost) else ActuationError
            raise kind("; ".join([text, *undone]), hint=cause.hint) from cause

    def restore(self, parts: Mapping[Part, Setting]) -> list[str]:
        """Put sides back, one by one, and return what failed; a failure never stops the rest.

        The order is the mapping's. A side that is no longer attached is a failure, too.
        """
        failures: list[str] = []
        for part, setting in parts.items():
            try:
                if part not in self.sides:
                    raise ActuationError("it is not attached any more")
                self._set(part, setting)
            except TuningError as error:
                text = f"the {part} is not back at {render_setting(setting)}: {error.message}"
                failures.append(text)
        return failures

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Confirm a setting that is in force to whoever guards a side. Raises ActuationError."""
        for side in self.sides.values():
            if side.tenure is not None:
                side.tenure.hold(_knobs(side, setting), study, revision, valid_for_s)

    def complaints(self) -> list[str]:
        """Return what those who guard a side have against what is in force."""
        return [said for side in self.sides.values() if (said := side.complaint())]

    def put_back(self, parts: Mapping[Part, Setting]) -> list[str]:
        """Put sides back to their originals, in the safe order, and return what failed.

        Where somebody guards a side, what it was is theirs to know.
        """
        failures: list[str] = []
        for part, setting in self.back_order(parts).items():
            tenure = self.sides[part].tenure if part in self.sides else None
            if tenure is None:
                failures += self.restore({part: setting})
                continue
            try:
                tenure.release()
            except TuningError as error:
                failures.append(f"the {part} is not back at its original: {error.message}")
        return failures

    def back_order(self, parts: Mapping[Part, Setting]) -> Mapping[Part, Setting]:
        """Return the parts in the order that is safe for going back to them."""
        if Part.DEVICE not in parts or Part.DEVICE not in self.sides:
            return parts
        try:
            present = self.device.actuator.read()
        except TuningError:
            return parts
        order = self._order(present, parts[Part.DEVICE])
        return {part: parts[part] for part in order if part in parts}

    def close(self) -> None:
        """Let go of both sides."""
        for side in reversed(list(self.sides.values())):
            side.close()

    def _set(self, part: Part, setting: Setting) -> None:
        side = self.sides[part]
        if not setting:
            return
        side.actuator.apply(setting)
        now = side.actuator.read()
        wrong = [f"{k} is {now.get(k)!r}, not {v!r}" for k, v in setting.items() if now.get(k) != v]
        if wrong:
            raise ActuationError(f"the {part} reads back otherwise: {', '.join(wrong)}")

    def _order(self, before: Setting, wanted: Setting) -> Sequence[Part]:
        slower = speed_change(self.device.space, before, wanted) < 0.0
        return [p for p in ([*Part][::-1] if slower else [*Part]) if p in self.sides]


def speed_change(space: Space, before: Setting, wanted: Setting) -> float:
    """Return how a change moves the device's numeric knobs: below 0 towards a slower device.

    The sum over the knobs of how far each moves up its list, as a share of the list: clocks and power
    limits all grow towards faster. A value outside the list, found before anything was set, counts
    as the default. Ours: no source gives an order for mixed moves.
    """
    change = 0.0
    for knob in space.knobs:
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in knob.values)
        if knob.part is not Part.DEVICE or not numeric or len(knob.values) < 2:
            continue
        start, end = (
            s[knob.name] if s.get(knob.name) in knob.values else knob.default
            for s in (before, wanted)
        )
        change += (knob.index(end) - knob.index(start)) / (len(knob.values) - 1)
    return change


def _knobs(side: Attached, setting: Setting) -> Setting:
    return {knob.name: setting[knob.name] for knob in side.space.knobs}


def _products(spaces: Sequence[Space]) -> Iterator[Setting]:
    if not spaces:
        yield {}
        return
    for first in spaces[0].grid():
        for rest in _products(spaces[1:]):
            yield {**first, **rest}
