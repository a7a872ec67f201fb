"""The port for studies and their revisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.devices import Device
from tuner.core.studies import Revision, Situation, Study, StudyStamp, UnreadableStudy
from tuner.core.trials import Phase

__all__ = ["Studies"]


class Studies(Protocol):
    """Studies with all their revisions. Values in, values out; safe from many threads."""

    def add(self, study: Study, who: str, why: str) -> None:
        """Store a new study as revision 1.

        Raises:
            Conflict: the id is taken.
            DeviceBusy: one of its devices belongs to another active study.
        """

    def get(self, study: str) -> Study:
        """Return a study at its latest revision. Raises NotFound."""

    def list(self, *, among: Collection[str] | None = None) -> Sequence[Study]:
        """Return the readable studies, oldest first: all, or those of these ids."""

    def stored(
        self,
        *,
        device: str | None = None,
        among: Collection[str] | None = None,
        active: bool = False,
    ) -> Sequence[Study | UnreadableStudy]:
        """Return studies, oldest first, including unreadable ones.

        `device`, `among` (ids) and `active` each restrict the result; by default all are returned.
        """

    def stamps(self) -> Mapping[str, StudyStamp]:
        """Return the progress of each study, by id, oldest first."""

    def of(self, device: str) -> Study | None:
        """Return the active study that has a device, None if none has it or the study cannot be read."""

    def situation(self, device: str) -> Situation:
        """Return the data that decide a device's next order. Raises NotFound: it is not registered."""

    def windows_s(self, devices: Collection[str]) -> Mapping[str, float]:
        """Return the window length of each device's active study, in seconds; without other devices."""

    def phases(self) -> Mapping[str, tuple[Phase, int]]:
        """Return the phase and revision of each study, by id, oldest first."""

    def holding_like(self, device: Device, most: int) -> Sequence[str]:
        """Return the ids of the `most` newest studies that hold on a like device.

        A like device has the same board, driver, workload and workload version.
        """

    def ids(
        self,
        device: str | None = None,
        workload: str | None = None,
        phase: str | None = None,
        group: str | None = None,
    ) -> Sequence[str]:
        """Return the ids of the studies of a device, workload, phase or group; oldest first."""

    def revise(self, study: Study, who: str, why: str, at: datetime) -> Study:
        """Store a study as the revision after the one that it has, and return it with that revision.

        Raises:
            NotFound: the study does not exist.
            StaleRevision: another writer has revised it since; read it again.
            DeviceBusy: it would become active again, but another active study has one of its devices.
        """

    def revisions(self, study: str) -> Sequence[Revision]:
        """Return every revision in order. Raises NotFound."""

    def latest(self, study: str) -> Revision:
        """Return the last revision. Raises NotFound."""

    def delete(self, study: str) -> None:
        """Remove an inactive study with its trials, reports and observations.

        Raises:
            NotFound: the study does not exist.
            Conflict: the study is still active.
        """
