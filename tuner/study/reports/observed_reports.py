"""Reports of devices that are only observed: windows to keep, of no study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import db
from tuner.core import (
    InvalidInput,
    NotFound,
    Now,
    Observation,
    TuningError,
    Unreadable,
    implausible,
)
from tuner.study.changes import Changes
from tuner.study.telemetry import Telemetry
from tuner.wire import HoldReport, Receipt


@dataclass
class ObservedReports:
    """Accept agents' windows of devices that are only observed."""

    store: db.Store
    now: Now
    changes: Changes
    telemetry: Telemetry
    _doubted: set[str] = field(default_factory=set)

    def observe_all(self, messages: Sequence[HoldReport]) -> list[Receipt | TuningError]:
        """Store windows in one transaction; a refusal is that report's answer.

        Raises:
            StoreError: the database does not answer.
        """
        try:
            return self._stored(messages)
        except (InvalidInput, NotFound, Unreadable) as error:
            if len(messages) == 1:
                return [error]
            return [answer for message in messages for answer in self.observe_all([message])]

    def _stored(self, messages: Sequence[HoldReport]) -> list[Receipt | TuningError]:
        kept = list[Observation]()
        devices = {name: self.store.devices.get(name) for name in {m.device for m in messages}}
        for message in messages:
            window, device = message.measurement, devices[message.device]
            if window is None or not device.observed:
                raise InvalidInput(f"{device.id} is not only observed, and its report has no study")
            if why := implausible(window, device.quantities):
                self._doubt(device.id, why)
                continue
            at = self.now()
            kept.append(
                Observation(study="", device=device.id, setting={}, measurement=window, at=at)
            )
        for one, new in zip(kept, self.store.observations.add_all(kept), strict=True):
            if new:
                self.telemetry.measured(devices[one.device], one.device, one.measurement)
                self.telemetry.observed(devices[one.device], one.measurement)
        return [Receipt(result="kept") for _ in messages]

    def _doubt(self, device: str, why: str) -> None:
        """Report once for each device why its windows are discarded."""
        if device not in self._doubted:
            self._doubted.add(device)
            text = f"an observed window was discarded: {why}; check the meter"
            self.changes.note("implausible", text, device=device)
