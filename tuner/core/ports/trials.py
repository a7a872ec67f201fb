"""Trials as they are kept, and the leases under which they run."""

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
        """Store a RUNNING trial under the next number and return it: of one device, or of all.

        `seen` is the revision and the number of trials of the study that the step was decided by:
        of several who decide by the same, one begins a trial.

        Raises:
            NotFound: there is no such study.
            StaleRevision: it is not as it was seen any more; look again.
        """

    def restart(self, study: str, number: int, at: datetime) -> Trial:
        """Count a further attempt of a running trial. Raises NotFound, IllegalTransition."""

    def end(self, study: str, number: int, outcome: Outcome, at: datetime) -> Trial:
        """Give a trial its one final state. Raises NotFound, IllegalTransition."""

    def list(self, study: str, first: int = 1) -> Sequence[Trial]:
        """Return the trials of a study by number, from the first on; empty for an unknown study."""

    def tried(self, study: str, setting: Setting) -> Sequence[Trial]:
        """Return the trials of a study at a setting by number; empty for an unknown study."""

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
        """Return trials with their study, latest start first: of these studies, or of all.

        The first `skip` are left out; `until` itself is not included. With a device, without those that
        another tried alone.
        """

    def count(self, study: str) -> int:
        """Return how many trials a study has; 0 for an unknown study."""

    def running(self, study: str) -> Sequence[Trial]:
        """Return the trials of a study that have not ended, by number."""

    def at_work(self) -> Sequence[TrialCare]:
        """Return every trial that has not ended, by study and number, with the leases on it."""

    def report(self, report: Report) -> bool:
        """Keep a report; False where the same (study, trial, device, token, nonce) is kept already.

        Raises:
            NotFound: there is no such trial.
        """

    def reports(self, study: str, number: int) -> Sequence[Report]:
        """Return every report on a trial, late ones too, in order of arrival."""


class Leases(Protocol):
    """At most one lease per device; tokens only grow, also over releases and restarts."""

    def grant(
        self, device: str, study: str, trial: Trial, agent: str, expires_at: datetime
    ) -> Lease:
        """Give the device's lease to a trial, replacing whatever lease there was.

        It has a greater token than any before and a secret nonce.

        Raises:
            NotFound: there is no such trial.
        """

    def get(self, device: str) -> Lease | None:
        """Return the device's lease, None where there is none."""

    def renew(self, device: str, token: int, nonce: str, expires_at: datetime) -> Lease:
        """Put off the end of the lease that has this token and nonce. Raises NotFound, StaleToken."""

    def release(self, device: str, token: int) -> None:
        """End the lease that has this token; quietly nothing where it is not in force."""
