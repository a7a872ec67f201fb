"""Trials: one setting tried once, and the only ways its state may change."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from tuner.compat import StrEnum
from tuner.core.errors import IllegalTransition, StaleToken
from tuner.core.goals import Limit
from tuner.core.knobs import Setting, setting_key
from tuner.core.measurements import Estimate, Measurement
from tuner.core.plans import Context, Plan

__all__ = ["NO_ANSWER", "Lease", "Outcome", "Phase", "Report", "Trial", "TrialCare", "TrialState"]

NO_ANSWER = "does not answer after its restart"
"""In the reason of a trial that failed since its workload was restarted and did not serve."""


class TrialState(StrEnum):
    """RUNNING ends once, in one of five ways; a limit broken is none of them but a verdict."""

    RUNNING = "running"
    COMPLETED = "completed"
    """Measured; `broke` names the limit for which it was cut short, where it was."""
    FAILED = "failed"
    """The setting could not be applied, or the meter gave nothing."""
    ABORTED = "aborted"
    """Ended from outside: the study was stopped or paused, or the agent did not come back."""
    CONTAMINATED = "contaminated"
    """Something else was measured along: foreign load, a foreign change, another rate."""
    INCONCLUSIVE = "inconclusive"
    """Measured, but too little to judge, even in the longest window. Noisy, not deployable."""

    @property
    def final(self) -> bool:
        """Whether the trial has ended."""
        return self is not TrialState.RUNNING

    @property
    def evidence(self) -> bool:
        """Whether the numbers of such a trial may be learnt from."""
        return self in (TrialState.COMPLETED, TrialState.INCONCLUSIVE)


class Phase(StrEnum):
    """Where a study stands."""

    BASELINE = "baseline"
    TUNING = "tuning"
    CONFIRMING = "confirming"
    PROPOSED = "proposed"
    """Confirmed, and waiting for an operator's yes; nothing is held meanwhile."""
    CANARY = "canary"
    """Held on one of the study's devices, until its windows confirm it there."""
    HOLDING = "holding"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended, as the agent reports it.

    `broke` is the limit for which a window was cut short: what it shows of that metric is only a
    bound ("worse than this"), good evidence against any stricter limit and none for a looser one.
    """

    state: TrialState
    measurement: Measurement | None = None
    broke: Limit | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.state.final:
            raise IllegalTransition("a report cannot leave its trial running")
        if self.state.evidence and self.measurement is None:
            raise IllegalTransition(f"a {self.state} trial needs a measurement")
        if self.broke is not None and self.state is not TrialState.COMPLETED:
            raise IllegalTransition(f"a {self.state} trial cannot be censored evidence")

    @property
    def censored(self) -> bool:
        """Whether the window was cut short for breaking a limit."""
        return self.broke is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting tried once, possibly in several attempts when an agent died on the way.

    `phase` is the study's phase when it was assigned, so baseline and confirming windows are trials
    like any other; one of a study that holds is a control window, at the baseline. `context` is the
    load that was requested; empty: whatever ran. `why` is the policy's reason in one sentence, `reason`
    why it ended as it did. `device` is the one of several like devices that tries it alone; empty: all of
    the study's do. What one alone shows is scaled to all (`tuner.study.apart`). `plan` is the table that is
    followed instead of one setting, which is then that of its row at the requested load, else its first
    row's.
    """

    number: int
    setting: Setting
    phase: Phase
    context: Context = field(default_factory=dict)
    device: str = ""
    plan: Plan | None = None
    state: TrialState = TrialState.RUNNING
    attempt: int = 1
    started_at: datetime
    ended_at: datetime | None = None
    why: str = ""
    measurement: Measurement | None = None
    broke: Limit | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.state.evidence and self.measurement is None:
            raise IllegalTransition(f"trial {self.number} is {self.state} without a measurement")
        if self.number < 1 or self.attempt < 1:
            raise IllegalTransition(f"trials and attempts count from 1, not {self.number}")

    @property
    def censored(self) -> bool:
        """Whether its window was cut short for breaking a limit."""
        return self.broke is not None

    @property
    def solid(self) -> bool:
        """Whether its window was measured to the end."""
        return self.state is TrialState.COMPLETED and not self.censored

    @property
    def control(self) -> bool:
        """Whether it measures the baseline again while a plan is held: for the bill alone."""
        return self.phase is Phase.HOLDING

    @property
    def ran_at(self) -> Context:
        """The load that its window ran under: as measured, else as asked; empty where unknown."""
        measured = self.measurement.context if self.measurement is not None else {}
        return {**self.context, **measured} if self.context else measured

    @property
    def shown(self) -> Mapping[str, Estimate]:
        """What its window showed, the metric of a broken limit as the mere bound it is."""
        if self.measurement is None:
            return {}
        estimates = dict(self.measurement.estimates)
        if self.broke is not None and self.broke.metric in estimates:
            estimates[self.broke.metric] = self.broke.bounded(estimates[self.broke.metric])
        return estimates

    def on(self, devices: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of its study's devices try it."""
        return (self.device,) if self.device else devices

    def again(self) -> Trial:
        """Return the trial as the same agent gets it after a crash: the next attempt.

        Raises:
            IllegalTransition: the trial has ended.
        """
        if self.state.final:
            raise IllegalTransition(f"trial {self.number} is {self.state}; it cannot start again")
        return replace(self, attempt=self.attempt + 1)

    def ended(self, outcome: Outcome, at: datetime) -> Trial:
        """Return the trial with its one final state.

        Raises:
            IllegalTransition: it has ended already; the first end stands.
        """
        if self.state.final:
            raise IllegalTransition(
                f"trial {self.number} is already {self.state}", hint="the first result is kept"
            )
        return replace(
            self,
            state=outcome.state,
            ended_at=at,
            measurement=outcome.measurement,
            broke=outcome.broke,
            reason=outcome.reason,
        )

    def tries(self, setting: Setting) -> bool:
        """Return whether this trial is of that setting: alone, or as the row of a table at one load."""
        alone = self.plan is None or self.plan.by in self.context
        return alone and setting_key(self.setting) == setting_key(setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one agent to run one trial on one device until `expires_at`.

    `token` fences: it only grows, per device, so a report with an older one is from an attempt that a newer
    one has replaced. `nonce` is sent to its owner only. `agent` is the agent's name, a slash, and a new
    word at each of its starts: the same agent asking twice differs so from one that came back after a
    crash.
    """

    device: str
    study: str
    trial: int
    attempt: int
    token: int
    nonce: str
    agent: str
    expires_at: datetime

    def held_by(self, agent: str) -> bool:
        """Return whether `agent` has the lease: this very start of it."""
        return self.agent == agent

    def succeeded_by(self, agent: str) -> bool:
        """Return whether `agent` is a later start of the agent that has the lease."""
        return self.agent != agent and self.agent.split("/")[0] == agent.split("/")[0]

    def admit(self, token: int, nonce: str) -> None:
        """Return quietly when `token` is the one in force, and `nonce` the secret granted with it.

        Raises:
            StaleToken: they are not; what came with them may be kept, but closes nothing.
        """
        if token != self.token:
            raise StaleToken(
                f"token {token} is not valid for trial {self.trial} on {self.device} "
                f"(attempt {self.attempt} holds {self.token})",
                hint="request the next assignment",
            )
        if not hmac.compare_digest(nonce.encode(), self.nonce.encode()):
            raise StaleToken(
                f"this is not the nonce granted with token {token} for trial {self.trial} on "
                f"{self.device}",
                hint="request the next assignment",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One device's outcome of one attempt, as it arrived. `late` ones are evidence, not endings."""

    study: str
    trial: int
    device: str
    attempt: int
    token: int
    nonce: str
    outcome: Outcome
    received_at: datetime
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCare:
    """Who cares for a trial that has not ended: token and end of each lease on it.

    It differs whenever an agent has done anything for the trial. `reported` says that some device has
    reported in time: where all have, and the trial has not ended, who was to end it has died.
    """

    study: str
    trial: int
    attempt: int
    leases: frozenset[tuple[int, datetime]]
    reported: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls, study: str, trial: Trial, leases: Iterable[Lease | None], reported: bool = False
    ) -> TrialCare:
        """Return who cares for a trial, of all who have these leases."""
        own = (study, trial.number)
        return cls(
            study=study,
            trial=trial.number,
            attempt=trial.attempt,
            leases=frozenset(
                (e.token, e.expires_at) for e in leases if e and (e.study, e.trial) == own
            ),
            reported=reported,
        )
