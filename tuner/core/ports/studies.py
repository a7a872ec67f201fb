"""Studies as they are kept, with all their revisions."""

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
        """Return a study as it is now. Raises NotFound."""

    def list(self, *, among: Collection[str] | None = None) -> Sequence[Study]:
        """Return the readable studies, oldest first: all, or those of these ids."""

    def stored(
        self,
        *,
        device: str | None = None,
        among: Collection[str] | None = None,
        active: bool = False,
    ) -> Sequence[Study | UnreadableStudy]:
        """Return all studies, oldest first, also unreadable ones: of a device, of these ids, active."""

    def stamps(self) -> Mapping[str, StudyStamp]:
        """Return how far each study has come, by its id, oldest first."""

    def of(self, device: str) -> Study | None:
        """Return the active study that has a device, None where none does that can be read."""

    def situation(self, device: str) -> Situation:
        """Return what a device's next order goes by. Raises NotFound: it is not registered."""

    def windows_s(self, devices: Collection[str]) -> Mapping[str, float]:
        """Return how long a window of each of these is, in seconds; without those no active study has."""

    def phases(self) -> Mapping[str, tuple[Phase, int]]:
        """Return phase and revision of each study, by its id, oldest first."""

    def holding_like(self, device: Device, most: int) -> Sequence[str]:
        """Return the newest studies that hold on a device of this board, workload and versions."""

    def ids(
        self,
        device: str | None = None,
        workload: str | None = None,
        phase: str | None = None,
        group: str | None = None,
    ) -> Sequence[str]:
        """Return the ids of the studies of a device, workload, phase or group; oldest first."""

    def revise(self, study: Study, who: str, why: str, at: datetime) -> Study:
        """Store the study as the revision after the one it carries, and return it so.

        Raises:
            NotFound: there is no such study.
            StaleRevision: another program revised it since; read it again.
            DeviceBusy: it became active again and a device is taken.
        """

    def revisions(self, study: str) -> Sequence[Revision]:
        """Return every revision, first to last. Raises NotFound."""

    def latest(self, study: str) -> Revision:
        """Return the last revision. Raises NotFound."""

    def delete(self, study: str) -> None:
        """Remove an inactive study with its trials, reports and observations.

        Raises:
            NotFound: there is no such study.
            Conflict: it is still active.
        """
