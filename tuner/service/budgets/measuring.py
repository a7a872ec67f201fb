"""Measurement of power fronts: one member of a group at a time, each by an ordinary study."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from policies.budget.fronts import LEAST_POINTS, PowerFront, front_of
from policies.budget.steps import GroupMember
from policies.budget.sweep import BASELINE_WINDOWS
from tuner.core import (
    POWER,
    POWER_CAP,
    Device,
    DeviceBusy,
    InvalidInput,
    MemberRecord,
    NotFound,
    Past,
    Phase,
    Setting,
    Study,
    Terms,
    Trial,
    Value,
    called,
)
from tuner.service.budgets.state import GroupState
from tuner.service.creation import drafted, store
from tuner.service.drafts import require
from tuner.service.study_changes import halt
from tuner.study.loop import Loop
from tuner.wire import Change, StudyDraft

FRESH_S = 60.0
"""Fronts are computed again after this number of seconds: trials take longer."""
SWEEP = "power-sweep"
"""The policy of studies that measure a front."""
LOOK_S = 10.0
"""Seconds between two searches for a member to measure, and the longest wait for its cap to rise."""
REFUSED_S = 3600.0
"""Seconds until a member that could not be measured is tried again.

It may have more watts or metrics then.
"""
CAPS = 8 - BASELINE_WINDOWS
"""The number of caps to try: with the baseline, a front takes eight windows at most."""


@dataclass(frozen=True)
class MemberFront:
    """A device's front. `study` is the one that measures it now, empty if it is not being measured.

    `swept`: a study that measures fronts was created for it. `drew` are all settings at which its power was
    measured, with the mean in watts of each window.
    """

    power: PowerFront = PowerFront()  # noqa: RUF009  frozen
    study: str = ""
    swept: bool = False
    drew: tuple[tuple[Setting, float], ...] = ()


class MeasuredFronts:
    """Fronts by device, each from the latest study of the device alone that measured one."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._of: dict[str, MemberFront] = {}
        self._due_s = -FRESH_S
        self._devices: frozenset[str] = frozenset()

    def of(self, devices: Collection[str]) -> Mapping[str, MemberFront]:
        """Return the fronts of some devices; a device that was never measured has an empty front."""
        now_s = self._loop.monotonic()
        if now_s >= self._due_s or not self._devices.issuperset(devices):
            self._devices |= frozenset(devices)
            fresh = {name: MemberFront() for name in self._devices}
            rows = self._loop.changes.rows("the front of power")
            for study in self._loop.store.studies.stored():
                if isinstance(study, Study) and len(study.devices) == 1:
                    rows.each(study.id, partial(self._take, study, fresh), lambda _: None)
            # Replaced as a whole: views read it in other threads.
            self._of, self._due_s = fresh, now_s + FRESH_S
        return self._of

    def forget(self) -> None:
        """Compute all fronts again at the next call of `of`."""
        self._due_s = -FRESH_S

    def _take(self, study: Study, fronts: dict[str, MemberFront]) -> None:
        """Update the front of a study's device from the trials of the study."""
        (device,) = study.devices
        if (before := fronts.get(device)) is None:
            return
        sweeps = study.policy == SWEEP
        trials = tuple(self._loop.store.trials.list(study.id))
        before = replace(before, drew=(*before.drew, *_drew(study, trials)))
        if sweeps and study.active:
            fronts[device] = replace(before, study=study.id, swept=True)
            return
        front = front_of(Past(study=study, trials=trials))
        if sweeps:  # a sweep has no limits: those of the study before stay
            before = replace(before, swept=True)
            front = replace(front, needs_w=before.power.needs_w)
        if front.points or not before.power.points:
            before = replace(before, power=front)
        fronts[device] = before


def _drew(study: Study, trials: Iterable[Trial]) -> Iterator[tuple[Setting, float]]:
    """Yield the settings and mean watts of the windows whose power only the setting limited."""
    power = called(POWER, study.quantities)
    for trial in trials:
        window = trial.measurement
        if window is None or window.throttled or POWER_CAP in window.sources:
            continue
        if power in window.estimates:
            yield trial.setting, window.estimates[power].mean


class FrontMeasuring:
    """Starts the studies of a group, and stops each once it has measured. Only the leader calls it."""

    def __init__(self, loop: Loop, fronts: MeasuredFronts) -> None:
        self._loop, self._fronts = loop, fronts
        self._due_s: dict[str, float] = {}
        self._refused_until_s: dict[str, float] = {}
        self._chosen: dict[str, str] = {}

    def lent(self, device: str) -> bool:
        """Return whether a member is being measured, or is the next to be."""
        chosen = device in self._chosen.values()
        return chosen or bool(self._fronts.of([device])[device].study)

    def go_on(self, state: GroupState) -> None:
        """Stop a group's study once it has measured the front; start the next if a member needs one.

        The member's cap rises first, so that all windows of the baseline are under the same cap.
        """
        for study in state.measuring.values():
            self._stop_measured(study)
        group, now_s = state.group.name, self._loop.monotonic()
        chosen, over = self._chosen.get(group, ""), now_s >= self._due_s.get(group, 0.0)
        if chosen and (over or chosen not in state.members or self._has_its_watts(state, chosen)):
            self._chosen.pop(group)
            if self._wants(state, chosen):
                self._begin(state, state.records[chosen])
        elif over and not chosen and not state.measuring and state.group.measure:
            self._due_s[group] = now_s + LOOK_S
            for name, record in state.records.items():
                if self._wants(state, name) and self._study(state, record, record.power.default_w):
                    self._chosen[group] = name
                    return

    def end(self, devices: Collection[str]) -> None:
        """Stop the studies of devices that have left their group."""
        for front in (f for n, f in self._fronts.of(devices).items() if n in devices):
            if front.study:
                self._halt(front.study, "its device has left the budget")

    def _stop_measured(self, name: str) -> None:
        """Stop a study that is past its baseline and tuning."""
        try:
            study = self._loop.store.studies.get(name)
        except NotFound:  # it was stopped and deleted
            self._fronts.forget()
            return
        if study.phase not in (Phase.BASELINE, Phase.TUNING):
            self._halt(name, study.reason or f"the front was measured; it was {study.phase}")

    def _halt(self, study: str, why: str) -> None:
        """Stop a study, and have all fronts computed again."""
        halt(self._loop, study, Change(who="budget", why=why))
        self._fronts.forget()

    def _wants(self, state: GroupState, name: str) -> bool:
        """Return whether a member has no front, was not swept before, and can be measured now."""
        member, front = state.members.get(name), self._fronts.of([name])[name]
        if member is None or front.power.points or front.swept:
            return False
        if self._loop.monotonic() < self._refused_until_s.get(name, 0.0):
            return False
        here = member.power.member and name not in state.plan.unreachable
        return here and self._loop.store.studies.of(name) is None

    def _has_its_watts(self, state: GroupState, name: str) -> bool:
        """Return whether a member has acknowledged a cap within 1 W of the planned one."""
        member, target_w = state.members[name], state.plan.division.caps_w.get(name, math.inf)
        cap_w = _cap_w(member, self._loop.steady())
        return member.device.lent and not member.power.sent and cap_w > target_w - 1.0

    def _begin(self, state: GroupState, record: MemberRecord) -> None:
        """Start the study of a member within its present cap."""
        top_w = _cap_w(state.members[record.device], self._loop.steady())
        if study := self._study(state, record, top_w):
            with suppress(DeviceBusy):  # an operator's study was first
                why = f"measures the front of power for {state.group.name}"
                store(self._loop, study, "budget", why)
            self._fronts.forget()

    def _study(self, state: GroupState, record: MemberRecord, top_w: float) -> Study | None:
        """Return a study of a member up to some watts.

        If it cannot be measured, return None and note why.
        """
        name = record.device
        try:
            device = self._loop.store.devices.get(name)
            values = _caps(record, device, top_w)
            few = next((n for n, one in values.items() if len(one) < LEAST_POINTS), "")
            if few:
                raise InvalidInput(f"{top_w:.0f} W leave less than {LEAST_POINTS} values of {few}")
            study = drafted(self._loop, _draft(record, device, values), {name: device})
            require(device, called(POWER, device.quantities), study)
        except (InvalidInput, NotFound) as error:
            self._refused_until_s[name] = self._loop.monotonic() + REFUSED_S
            why = f"{state.group.name}: {name} is not measured and shares uniformly: {error}"
            self._loop.changes.note("budget", why)
            return None
        return study


def _cap_w(member: GroupMember, now_s: float) -> float:
    """Return the cap in watts that a member has acknowledged; its floor before the first."""
    step = member.power.acknowledged.step(now_s)
    return member.device.floor_w if step is None else step.cap_w


def _caps(record: MemberRecord, device: Device, top_w: float) -> Mapping[str, tuple[Value, ...]]:
    """Return the values of each cap knob up to some watts, evenly spaced, and its default.

    Raises:
        UnknownKnob: the device does not offer one of the knobs to its studies.
    """
    floor_w = record.power.floor_w
    levels = [record.at_most(floor_w + (top_w - floor_w) * n / (CAPS - 1)) for n in range(CAPS)]
    if record.by_clock:  # few of its ceilings may have watts yet
        levels = [_between(record, levels[-1], n / (CAPS - 1)) for n in range(CAPS)]
    chosen: dict[str, tuple[Value, ...]] = {}
    for cap in record.knobs:
        knob = device.space.knob(cap.name)
        offered = [v for v in knob.values if isinstance(v, int | float) and v >= cap.floor]
        nearest = {
            max((v for v in offered if v <= at[cap.name]), default=None) for at in levels
        } - {None}
        chosen[cap.name] = tuple(v for v in knob.values if v in nearest or v == knob.default)
    return chosen


def _between(record: MemberRecord, most: Mapping[str, float], part: float) -> dict[str, float]:
    """Return clock ceilings at a fraction of the way from the floor to the given ones."""
    return {k.name: k.floor + part * (most[k.name] - k.floor) for k in record.knobs}


def _draft(
    record: MemberRecord, device: Device, values: Mapping[str, tuple[Value, ...]]
) -> StudyDraft:
    """Return the draft of a study of the cap knobs alone, without limits."""
    others = {k.name: (k.default,) for k in device.space.knobs if k.name not in values}
    return StudyDraft(
        devices=(record.device,),
        constraints=(),
        policy=SWEEP,
        choices={**others, **values},
        terms=Terms(trials=CAPS, transfer=False),
        who="budget",
    )
