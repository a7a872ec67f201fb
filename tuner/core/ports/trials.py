"""Ports for trials and for the leases under which they run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from tuner.core.knobs import Setting
from tuner.core.plans import ANYWHERE, Context, Plan
from tuner.core.trials import Lease, Outcome, Phase, Report, Trial, TrialCare, TrialState

__all__ = ["Leases", "Trials"]


class Trials(Protocol):
    """The trials of studies. Numbers count up from 1 per study; a final trial never changes."""

    def begin(
        self,
        study: str,
        setting: Setting,
        phase: Phase,
        why: str,
        at: datetime,
        context: Context = ANYWHERE,
        seen: tuple[int, int] | None = None,
        device: str = "",
        plan: Plan | None = None,
    ) -> Trial:
        """Store a RUNNING trial under the next number and return it. `device` is empty for all devices.

        `seen` is the study's revision and number of trials on which the step was decided. If several
        processes decide on the same state, only the first begins a trial.

        Raises:
            NotFound: the study does not exist.
            StaleRevision: the study has changed since `seen`; read it again.
        """

    def restart(self, study: str, number: int, at: datetime) -> Trial:
        """Record another attempt of a running trial. Raises NotFound, IllegalTransition."""

    def end(self, study: str, number: int, outcome: Outcome, at: datetime) -> Trial:
        """End a trial with its outcome; its state is then final. Raises NotFound, IllegalTransition."""

    def list(self, study: str, first: int = 1) -> Sequence[Trial]:
        """Return the trials of a study by number, from number `first` on; empty for an unknown study."""

    def tried(self, study: str, setting: Setting) -> Sequence[Trial]:
        """Return the trials of a study at one setting, by number; empty for an unknown study."""

    def latest(
        self,
        last: int,
        skip: int = 0,
        studies: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        state: TrialState | None = None,
        device: str | None = None,
    ) -> Sequence[tuple[str, Trial]]:
        """Return at most `last` trials with their studies, latest start first: of these studies, or of all.

        The first `skip` are left out. Trials started from `since` to before `until`. With `device`, trials
        that another device ran alone are left out.
        """

    def count(self, study: str) -> int:
        """Return the number of a study's trials; 0 for an unknown study."""

    def running(self, study: str) -> Sequence[Trial]:
        """Return the trials of a study that have not ended, by number."""

    def at_work(self) -> Sequence[TrialCare]:
        """Return every trial that has not ended, with its leases, by study and number."""

    def report(self, report: Report) -> bool:
        """Store a report; return False if one of the same study, trial, device, token and nonce is stored.

        Raises:
            NotFound: the trial does not exist.
        """

    def reports(self, study: str, number: int) -> Sequence[Report]:
        """Return every report on a trial, including late ones, in order of arrival."""


class Leases(Protocol):
    """Leases, at most one per device. A device's tokens only increase, also after releases and restarts."""

    def grant(
        self, device: str, study: str, trial: Trial, agent: str, expires_at: datetime
    ) -> Lease:
        """Give the device's lease to a trial, in place of any former lease.

        The new lease has a greater token than all former ones, and a secret nonce.

        Raises:
            NotFound: the trial does not exist.
        """

    def get(self, device: str) -> Lease | None:
        """Return the device's lease, None if it has none."""

    def renew(self, device: str, token: int, nonce: str, expires_at: datetime) -> Lease:
        """Extend the lease that has this token and nonce. Raises NotFound, StaleToken."""

    def release(self, device: str, token: int) -> None:
        """End the lease that has this token; do nothing if it is not in force."""
