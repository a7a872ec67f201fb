"""The measured power front of each member, from its latest study."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from policies.budget.fronts import PowerFront, front_of
from tuner.core import POWER, POWER_CAP, Past, Setting, Study, Trial, called
from tuner.study.loop import Loop

FRESH_S = 60.0
"""Fronts are computed again after this number of seconds: trials take longer."""
SWEEP = "power-sweep"
"""The policy of studies that measure a front."""


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
