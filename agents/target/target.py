"""A target: the sides that one study sets and measures together, at most one of them a workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from agents.target.capping import TargetCaps
from agents.target.measured import WORKLOAD, MeasuredTarget
from agents.target.side import (
    Accepted,
    FallsBack,
    FollowsPlans,
    MeasuredSide,
    Restartable,
    Side,
)
from tuner.core import (
    ActuationError,
    ConfigError,
    Conflict,
    Context,
    DeviceLost,
    Part,
    Plan,
    Role,
    Setting,
    Space,
    TuningError,
    render_setting,
)

SideSettings = Mapping[str, Setting]
"""Settings by the side's key."""


def together(spaces: Sequence[Space]) -> Space:
    """Return the space of every combination of these spaces' settings."""
    knobs = tuple(knob for space in spaces for knob in space.knobs)
    if any(knob.role is Role.CORE_CLOCK for knob in knobs):  # beside a GPU a CPU only feeds it
        feeds = {Role.CPU_CLOCK: Role.HOST_CLOCK}
        knobs = tuple(replace(knob, role=feeds.get(knob.role, knob.role)) for knob in knobs)
    if not any(space.only for space in spaces):
        return Space(knobs)
    return Space(knobs, tuple(_products(spaces)))


def speed_change(space: Space, before: Setting, after: Setting) -> float:
    """Return the direction of a change of a device; below 0 is slower.

    Each numeric knob of the device, and its boost knob, counts with the share of its list by which it
    moves up; lists of clocks and power limits go from slow to fast. The result is the sum. A value
    outside the list, in force before anything was set, counts as the default. Our choice: no source
    gives an order for mixed moves.
    """
    change = 0.0
    for knob in space.knobs:
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in knob.values)
        ordered = numeric or knob.role is Role.BOOST
        if knob.part is not Part.DEVICE or not ordered or len(knob.values) < 2:
            continue
        start, end = (
            s[knob.name] if s.get(knob.name) in knob.values else knob.default
            for s in (before, after)
        )
        change += (knob.index(end) - knob.index(start)) / (len(knob.values) - 1)
    return change


def _products(spaces: Sequence[Space]) -> Iterator[Setting]:
    """Yield every combination of the spaces' settings."""
    if not spaces:
        yield {}
        return
    for first in spaces[0].grid():
        for rest in _products(spaces[1:]):
            yield {**first, **rest}


@dataclass(frozen=True)
class Target(MeasuredTarget[Side]):
    """Devices that can also be set, with or without a workload.

    Raises:
        ConfigError: as `MeasuredTarget`, or two sides have a knob of one name.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [knob.name for side in self.sides.values() for knob in side.space.knobs]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ConfigError(
                f"{twice[0]} is a knob of two sides of {self.name}",
                hint="tune the two as separate devices",
            )

    @cached_property
    def caps(self) -> TargetCaps:
        """Its sides' power caps."""
        return TargetCaps(self.sides)

    @property
    def settle_s(self) -> float:
        """The time in seconds until a change takes effect."""
        return max(side.settle_s for side in self.sides.values())

    @cached_property
    def space(self) -> Space:
        """Every combination of the sides' settings."""
        return together([side.space for side in self.sides.values()])

    @property
    def offered(self) -> Space:
        """The part of the space that is still worth trying; sides withdraw knobs during operation."""
        if all(side.offered is side.space for side in self.sides.values()):
            return self.space
        return together([side.offered for side in self.sides.values()])

    @property
    def measured(self) -> MeasuredTarget[MeasuredSide]:
        """Its devices and its workload without their actuators."""
        devices = tuple(side.measured for side in self.devices if not side.restarts_workload)
        return MeasuredTarget(devices, self.workload and self.workload.measured)

    @property
    def cannot(self) -> Mapping[str, str]:
        """Knobs and metrics that no side can set, prove or measure, with the reasons."""
        offered = {m.name for m in self.metrics} | {k.name for k in self.space.knobs}
        reasons = dict(super().cannot)
        for side in self.sides.values():
            reasons |= {f"proof of {name}": why for name, why in side.unproven.items()}
        withdrawn = {k: v for side in self.sides.values() for k, v in side.withdrawn.items()}
        return {name: why for name, why in reasons.items() if name not in offered} | withdrawn

    def askable(self, context: Context) -> Context:
        """Return the part of a load that can be requested here."""
        offered = {name for name, live in self.signals.items() if live.signal.askable}
        return {name: value for name, value in context.items() if name in offered}

    @property
    def jobs(self) -> Mapping[str, str]:
        """The batch job of each leased side, by the last answers of their guards."""
        jobs = {key: getattr(side.actuator, "job", "") for key, side in self.sides.items()}
        return {key: job for key, job in jobs.items() if job}

    def refuse_beside_a_job(self) -> None:
        """Raise Conflict if a batch job has a device."""
        for key, job in self.jobs.items():
            hint = "it is set again after the job"
            raise Conflict(f"{key} is leased to job {job}", hint=hint)

    @property
    def restartable(self) -> Restartable | None:
        """The running workload or device, if it reports restarts."""
        actuator = self.runs.actuator
        return actuator if isinstance(actuator, Restartable) else None

    def read(self) -> Setting:
        """Return the setting in force on all sides. Raises ActuationError."""
        return {k: v for side in self.sides.values() for k, v in side.actuator.read().items()}

    def read_sides(self) -> SideSettings:
        """Return the settings in force by side. Raises ActuationError."""
        return {key: dict(side.actuator.read()) for key, side in self.sides.items()}

    def apply(self, setting: Setting, plan: Plan | None = None) -> bool:
        """Put a whole setting, within the power caps, in force in the safe order, or change nothing.

        A workload that follows `plan` itself receives the plan instead of its part of the setting,
        which could need another restart; return whether it received the plan.

        Raises:
            InvalidInput: the setting is not in the space; nothing was changed.
            Conflict: a batch job has a device; nothing was changed.
            ActuationError: a side is not as set; the message lists the sides that could not be restored.
        """
        self.space.check(setting)
        within = self.caps.clipped(setting)
        try:
            return self._apply(within, plan)
        except TuningError:
            if (now := self.caps.refreshed(setting)) == within:  # no other cap came into force
                raise
            return self._apply(now, plan)

    def _apply(self, setting: Setting, plan: Plan | None) -> bool:
        """Set every side, or none after an error. Return whether the workload got the plan."""
        before = self.read_sides()
        self.refuse_beside_a_job()
        requested = {key: _of(side, setting) for key, side in self.sides.items()}
        touched: list[str] = []
        handed = False
        try:
            for key in self._order(before, requested):
                touched.append(key)
                if key == WORKLOAD and plan is not None and self._follow(plan):
                    handed = True
                else:
                    self._set(key, requested[key])
        except TuningError as cause:
            undone = self.restore({key: before[key] for key in reversed(touched)})
            text = f"cannot set {render_setting(setting)}: {cause.message}"
            kind = DeviceLost if isinstance(cause, DeviceLost) else ActuationError
            raise kind("; ".join([text, *undone]), hint=cause.hint) from cause
        return handed

    def restore(self, settings: SideSettings) -> list[str]:
        """Restore sides in the mapping's order; return all failures, also of sides that are gone."""
        failures: list[str] = []
        for key, setting in settings.items():
            try:
                if key not in self.sides:
                    raise ActuationError("it is no longer attached")
                self._set(key, setting)
            except TuningError as error:
                text = f"{key} is not restored to {render_setting(setting)}: {error.message}"
                failures.append(text)
        return failures

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        """Confirm a setting that is in force, within the caps, to guards. Raises ActuationError."""
        setting = self.caps.clipped(setting)
        for side in self.sides.values():
            if side.guard is not None:
                side.guard.hold(_of(side, setting), study, revision, valid_for_s)

    def conflicts(self) -> list[str]:
        """Return the guards' objections to the settings in force."""
        guards = [side.guard for side in self.sides.values()]
        return [why for guard in guards if guard is not None and (why := guard.conflict())]

    def restore_originals(self, settings: SideSettings) -> list[str]:
        """Restore sides to their originals, in the safe order, and return the failures.

        If a side has a guard, the guard keeps its original.
        """
        failures: list[str] = []
        for key, setting in self.restore_order(settings).items():
            guard = self.sides[key].guard if key in self.sides else None
            if guard is None:
                failures += self.restore({key: setting})
                continue
            try:
                guard.release()
            except TuningError as error:
                failures.append(f"{key} is not restored to its original: {error.message}")
        return failures

    def restore_order(self, settings: SideSettings) -> SideSettings:
        """Return the sides in the safe order for restoring them."""
        present: dict[str, Setting] = {}
        for key, side in self.sides.items():
            if key in settings and key != WORKLOAD:
                try:
                    present[key] = side.actuator.read()
                except TuningError:
                    present[key] = settings[key]
        order = [key for key in self._order(present, settings) if key in settings]
        return {key: settings[key] for key in (*order, *(k for k in settings if k not in order))}

    def follows(self, plan: Plan) -> bool:
        """Return whether the workload itself follows exactly this plan. Raises ActuationError."""
        actuator = self.runs.actuator
        if self.workload is None or not isinstance(actuator, FollowsPlans):
            return False
        return actuator.followed() == self._workload_plan(plan)

    def look(self, reference: Accepted) -> Accepted:
        """Let the workload check whether its plan still pays; return the known acceptance.

        Raises ActuationError.
        """
        actuator = self.runs.actuator
        return actuator.look(reference) if isinstance(actuator, FallsBack) else reference

    def _follow(self, plan: Plan) -> bool:
        """Give a plan to a workload that follows plans itself; return False if it does not take it.

        The plan's rows may differ only in the workload's knobs. Raises ActuationError.
        """
        actuator = self.runs.actuator
        if self.workload is None or not isinstance(actuator, FollowsPlans) or len(plan.rows) < 2:
            return False
        others = [k.name for side in self.devices for k in side.space.knobs]
        first = plan.rows[0].setting
        if any(row.setting[name] != first[name] for row in plan.rows for name in others):
            return False
        return actuator.follow(self._workload_plan(plan))

    def _workload_plan(self, plan: Plan) -> Plan:
        """Return a plan with the workload's knobs only."""
        rows = tuple(replace(row, setting=_of(self.runs, row.setting)) for row in plan.rows)
        return replace(plan, rows=rows)

    def _set(self, key: str, setting: Setting) -> None:
        """Set a side and read it back. Raises ActuationError."""
        side = self.sides[key]
        if not setting:
            return
        side.actuator.apply(setting)
        now = side.actuator.read()
        wrong = [f"{k} is {now.get(k)!r}, not {v!r}" for k, v in setting.items() if now.get(k) != v]
        if wrong:
            raise ActuationError(f"{key} reads back different values: {', '.join(wrong)}")

    def _order(self, before: SideSettings, requested: SideSettings) -> Sequence[str]:
        """Return the sides in an order that never loads a device above its setting.

        Devices that become faster are first, then devices that restart the workload, the workload, and
        at last devices that become slower.
        """
        slower = [
            key
            for key, side in self.sides.items()
            if key in before
            and key != WORKLOAD
            and speed_change(side.space, before[key], requested.get(key, {})) < 0.0
        ]
        order = sorted(self.sides, key=lambda k: k == WORKLOAD or self.sides[k].restarts_workload)
        return [*(key for key in order if key not in slower), *slower]


def _of(side: Side, setting: Setting) -> Setting:
    """Return the part of a setting that belongs to a side."""
    return {knob.name: setting[knob.name] for knob in side.space.knobs}
