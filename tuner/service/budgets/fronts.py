"""The measured front of power of each member, as its latest study shows it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from policies.budget.fronts import PowerFront, front_of
from tuner.core import Past, Study, TuningError
from tuner.study.loop import Loop

log = logging.getLogger(__name__)

FRESH_S = 60.0
"""A front is computed again after this: trials take longer."""


class MeasuredFronts:
    """Fronts by device. Each is of the latest study of the device alone that measured one."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._of: dict[str, PowerFront] = {}
        self._due_s = -FRESH_S
        self._devices: frozenset[str] = frozenset()

    def of(self, devices: Collection[str]) -> Mapping[str, PowerFront]:
        """Return the fronts of some devices; one that was never measured has an empty one."""
        now_s = self._loop.monotonic()
        if now_s >= self._due_s or not self._devices.issuperset(devices):
            self._devices |= frozenset(devices)
            self._of = {name: PowerFront() for name in self._devices}
            for study in self._loop.store.studies.stored():
                if isinstance(study, Study) and len(study.devices) == 1:
                    self._take(study)
            self._due_s = now_s + FRESH_S
        return self._of

    def _take(self, study: Study) -> None:
        (device,) = study.devices
        if device not in self._of:
            return
        try:
            trials = tuple(self._loop.store.trials.list(study.id))
            front = front_of(Past(study=study, trials=trials))
        except TuningError as error:  # one study that cannot be read must not keep the others
            log.warning("event=front_not_read study=%s: %s", study.id, error)
            return
        if front.points or not self._of[device].points:
            self._of[device] = front
