"""Stores each device's description from its agent, and its last reported setting."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import db
from tuner.core import (
    Applied,
    Device,
    NotFound,
    Notice,
    Now,
    Study,
    Topic,
    TrialState,
    render_setting,
    setting_key,
)
from tuner.study.changes import TUNER, Changes, Telemetry, looking_again
from tuner.study.presence import Presence


@dataclass(frozen=True)
class Registry:
    """Store new descriptions of devices, and align their studies with them."""

    store: db.Store
    now: Now
    changes: Changes
    telemetry: Telemetry
    presence: Presence
    _applied: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def register(self, device: Device) -> None:
        """Store a device's description from its agent; a new driver or workload restarts its study."""
        device = replace(device, seen_at=self.now())
        try:
            former = self.store.devices.get(device.id)
        except NotFound:
            self.changes.note(
                "registered", f"{device.board} with {device.workload}", device=device.id
            )
            self.store.devices.put(device)  # a new one has no study yet
        else:
            versions = former.driver, former.workload_version
            if versions != (device.driver, device.workload_version):
                self._restart_evidence(device)  # before `put`: a crash in between repeats it
            self.store.devices.put(device)
            self._narrow(device)
        self._applied.pop(device.id, None)

    def note_applied(self, applied: Applied, stored: Applied | None, news: str) -> None:
        """Store a device's reported setting if it has changed.

        Other tuners are notified of a change, and of `news` on whether the device takes orders,
        because their caches are then outdated.
        """
        state = (setting_key(applied.setting), applied.level, applied.study, applied.revision)
        if self._applied.get(applied.device) != state:
            if stored is None or replace(stored, at=applied.at) != applied:
                self.store.devices.apply(replace(applied, at=self.now()))
            self.telemetry.applied(applied)
        if news:
            self.store.bus.publish(Notice(Topic.DEVICES, devices=(applied.device,)))
            self.presence.stored_here(applied.device)
        self._applied[applied.device] = state

    def forget(self, devices: Collection[str]) -> None:
        """Drop cached settings of devices, which another process may have stored; of all for None."""
        for device in devices or tuple(self._applied):
            self._applied.pop(device, None)

    def _restart_evidence(self, device: Device) -> None:
        study = self.store.studies.of(device.id)
        if study is None:
            return
        with self.changes.lock(study.id):
            study = self.store.studies.get(study.id)
            why = f"driver {device.driver}, workload {device.workload_version}: the device changed"
            self.changes.abort(study, why)
            self.changes.start_over(study, why)

    @looking_again
    def _narrow(self, device: Device) -> None:
        """Remove knobs and values from a study's space that its device no longer offers or that it refuses.

        Evidence within the remaining space still counts. A plan with a removed value is given up. A
        running trial with one fails, so that no setting stays in force that its device would refuse.
        The study of a device that is now only observed waits until the device can be set again.
        """
        study = self.store.studies.of(device.id)
        if study is None or device.observed:
            return
        with self.changes.lock(study.id):
            study = self.store.studies.get(study.id)
            space = study.space.within(device.space)
            if space == study.space:
                self._end_outside(study, device)  # a crash may have left them
                return
            dropped = [
                k.name for k, left in zip(study.space.knobs, space.knobs, strict=True) if k != left
            ]
            losses = [
                f"{name}: {device.cannot.get(name, 'fewer values take effect')}" for name in dropped
            ]
            why = f"{device.id} offers fewer knobs or values than before; {'; '.join(losses)}"
            narrowed = replace(study, space=space)
            if study.plan is not None and not all(space.has(r.setting) for r in study.plan.rows):
                self.changes.abort(study, why)
                self.changes.start_over(narrowed, why)
                return
            self.changes.note("narrowed", why, study.id, device.id)
            self._end_outside(self.changes.revise(narrowed, TUNER, why), device)

    def _end_outside(self, study: Study, device: Device) -> None:
        """End the running trials of settings that are no longer in a study's space."""
        for trial in self.store.trials.running(study.id):
            if not study.space.has(trial.setting):
                why = f"{device.id} no longer offers {render_setting(trial.setting)}"
                self.changes.cancel(study, trial, why, TrialState.FAILED)
