"""Trials of one setting, the only changes that their state may take, and the leases on them.

The reports of several similar devices, under one workload and one setting, become one outcome.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tuner.compat import StrEnum
from tuner.core.errors import IllegalTransition, StaleToken
from tuner.core.estimates import Estimate, weakest
from tuner.core.goals import Limit
from tuner.core.knobs import Setting, setting_key
from tuner.core.measurements import Measurement
from tuner.core.plans import Context, Plan
from tuner.core.quantities import UNDECLARED, OverDevices, Quantities, quantity_of

NO_ANSWER = "does not answer after its restart"
"""Part of the reason of a failed trial: its workload was restarted and did not serve."""


class TrialState(StrEnum):
    """The state of a trial. RUNNING ends once, in one of five ways; a broken limit is a verdict instead."""

    RUNNING = "running"
    COMPLETED = "completed"
    """Measured. If the window was cut short, `broke` is the limit that it broke."""
    FAILED = "failed"
    """The setting could not be applied, or the meter gave no values."""
    ABORTED = "aborted"
    """Ended from outside: the study was stopped or paused, or the agent did not return."""
    CONTAMINATED = "contaminated"
    """The window also measured something else: foreign load, a foreign change, another rate."""
    INCONCLUSIVE = "inconclusive"
    """Measured, but with too few data for a verdict even in the longest window: noisy, not deployable."""

    @property
    def final(self) -> bool:
        """Whether the trial has ended."""
        return self is not TrialState.RUNNING

    @property
    def evidence(self) -> bool:
        """Whether the numbers of such a trial count as evidence."""
        return self in (TrialState.COMPLETED, TrialState.INCONCLUSIVE)


class Phase(StrEnum):
    """The phase of a study."""

    BASELINE = "baseline"
    TUNING = "tuning"
    CONFIRMING = "confirming"
    PROPOSED = "proposed"
    """The plan is confirmed and waits for an operator's approval; nothing is held meanwhile."""
    CANARY = "canary"
    """The plan is held on one of the study's devices, until its windows confirm it there."""
    HOLDING = "holding"
    PAUSED = "paused"
    STOPPED = "stopped"


ACTIVE = frozenset(Phase) - {Phase.STOPPED}
"""Phases in which a study owns its devices."""
HELD = frozenset({Phase.CANARY, Phase.HOLDING})
"""Phases in which a plan is held, on one device or on all."""
PLANNED = HELD | {Phase.CONFIRMING, Phase.PROPOSED}
"""Phases in which a study must have a plan."""
_ALWAYS = frozenset({Phase.PAUSED, Phase.STOPPED})
_DECIDED = frozenset({Phase.PROPOSED, Phase.HOLDING})
EDGES: Mapping[Phase, frozenset[Phase]] = {
    Phase.BASELINE: _ALWAYS | _DECIDED | {Phase.TUNING},
    Phase.TUNING: _ALWAYS | _DECIDED | {Phase.BASELINE, Phase.CONFIRMING},
    Phase.CONFIRMING: _ALWAYS | _DECIDED | {Phase.CANARY, Phase.BASELINE, Phase.TUNING},
    Phase.PROPOSED: _ALWAYS | HELD | {Phase.BASELINE, Phase.TUNING},
    Phase.CANARY: _ALWAYS | {Phase.BASELINE, Phase.TUNING, Phase.HOLDING},
    Phase.HOLDING: _ALWAYS | {Phase.BASELINE, Phase.TUNING, Phase.CONFIRMING},
    Phase.PAUSED: ACTIVE - {Phase.PAUSED} | {Phase.STOPPED},
    Phase.STOPPED: frozenset(),
}
"""All transitions. BASELINE follows a changed driver, workload or rate band; TUNING follows HOLDING on
drift or a changed constraint, CONFIRMING at a higher load. Only studies that advise reach PROPOSED, only
studies with a canary reach CANARY."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of an attempt, as the agent reports it.

    `broke` is the limit for which a window was cut short. Its value of that metric is only a bound ("worse
    than this"): evidence against any stricter limit, but no evidence for a looser one.
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
    """One try of one setting, in several attempts if an agent died in between.

    `phase` is the study's phase when the trial was assigned, so baseline and confirming windows are trials
    like any other; a trial of a study that holds is a control window, at the baseline. `context` is the
    requested load; empty if none was requested. `why` is the policy's reason for the trial in one sentence,
    `reason` the reason for its end. `device` is the one of several similar devices that tries the setting
    alone; empty if all devices of the study do. The results of one device are scaled to all
    (`tuner.study.apart`). `plan` is the table that is followed instead of one setting; then `setting` is
    that of its row at the requested load, or of its first row.
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
        """Whether it measures the baseline again while a plan is held; only the bill uses it."""
        return self.phase is Phase.HOLDING

    @property
    def ran_at(self) -> Context:
        """The load of its window: as measured, else as requested; empty if unknown."""
        measured = self.measurement.context if self.measurement is not None else {}
        return {**self.context, **measured} if self.context else measured

    @property
    def shown(self) -> Mapping[str, Estimate]:
        """The estimates of its window; that of a broken limit's metric is only a bound."""
        if self.measurement is None:
            return {}
        estimates = dict(self.measurement.estimates)
        if self.broke is not None and self.broke.metric in estimates:
            estimates[self.broke.metric] = self.broke.bounded(estimates[self.broke.metric])
        return estimates

    def on(self, devices: tuple[str, ...]) -> tuple[str, ...]:
        """Return the devices that run the trial; `devices` are all devices of its study."""
        return (self.device,) if self.device else devices

    def again(self) -> Trial:
        """Return the trial with its next attempt, for the same agent after a crash.

        Raises:
            IllegalTransition: the trial has ended.
        """
        if self.state.final:
            raise IllegalTransition(f"trial {self.number} is {self.state}; it cannot start again")
        return replace(self, attempt=self.attempt + 1)

    def ended(self, outcome: Outcome, at: datetime) -> Trial:
        """Return the trial with its one final state.

        Raises:
            IllegalTransition: it has ended already; the first result is kept.
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
        """Return whether the trial tries this setting: alone, or as a table's row at a requested load."""
        alone = self.plan is None or self.plan.by in self.context
        return alone and setting_key(self.setting) == setting_key(setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one agent to run one trial on one device until `expires_at`.

    `token` is a fencing token: it grows with each lease of the device, so a report with an older token is
    from an attempt that was replaced. `nonce` is sent to the lease's owner only. `agent` is the agent's
    name, a slash, and a word that is new at each start of the agent. So a second request of a running agent
    differs from one after a crash.
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
        """Return whether this start of `agent` has the lease."""
        return self.agent == agent

    def succeeded_by(self, agent: str) -> bool:
        """Return whether `agent` is another start of the agent that has the lease."""
        return self.agent != agent and self.agent.split("/")[0] == agent.split("/")[0]

    def admit(self, token: int, nonce: str) -> None:
        """Return quietly if `token` is the one in force, and `nonce` the secret granted with it.

        Raises:
            StaleToken: they are not. Their report may be kept as evidence, but ends no trial.
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
    """One device's outcome of one attempt, as received. A `late` report is evidence, but ends no trial."""

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
    """The leases on a trial that has not ended: the token and the end of each.

    It changes whenever an agent works on the trial. `reported` is whether a device has reported in time. If
    all devices have, and the trial has not ended, then the process that had to end it has died.
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
        """Return the care for a trial from the leases of its study's devices."""
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


_GRAVEST_FIRST: tuple[TrialState, ...] = (
    TrialState.FAILED,
    TrialState.ABORTED,
    TrialState.CONTAMINATED,
    TrialState.INCONCLUSIVE,
    TrialState.COMPLETED,
)


def merged(outcomes: Sequence[Outcome], declared: Quantities = UNDECLARED) -> Outcome:
    """Return the outcome of a trial from the outcomes of its devices, of which there is at least one.

    The trial gets the gravest state. Quantities to which every device contributes, as energy to a shared
    item, are summed. Every other metric is the slowest device's: the highest latency, the lowest
    throughput.
    """
    if len(outcomes) == 1:
        return outcomes[0]
    gravest = min(outcomes, key=lambda o: _GRAVEST_FIRST.index(o.state))
    broken = next((o.broke for o in outcomes if o.broke is not None), None)
    windows = [o.measurement for o in outcomes if o.measurement is not None]
    complete = len(windows) == len(outcomes)
    return replace(
        gravest,
        measurement=_merged_windows(windows, declared) if complete else gravest.measurement,
        broke=broken if gravest.state is TrialState.COMPLETED else None,
        reason="; ".join(dict.fromkeys(o.reason for o in outcomes if o.reason)),
    )


def _merged_windows(windows: Sequence[Measurement], declared: Quantities) -> Measurement:
    """Return the windows of all devices as one, with the metrics that every device has."""
    shared = [n for n in windows[0].estimates if all(n in w.estimates for w in windows)]
    slowest = max(windows, key=lambda w: w.seconds)
    return replace(
        slowest,
        estimates={
            n: merged_estimate(
                [w.estimates[n] for w in windows], quantity_of(n, declared).over_devices
            )
            for n in shared
        },
        throttled=tuple(dict.fromkeys(reason for w in windows for reason in w.throttled)),
        foreign=max(w.foreign for w in windows),
        sources={name: source for w in windows for name, source in w.sources.items()},
    )


def merged_estimate(estimates: Sequence[Estimate], over: OverDevices) -> Estimate:
    """Return the estimate for several devices together: their sum, or the slowest device's."""
    if over is not OverDevices.SUM:
        worse = min if over is OverDevices.LEAST else max
        slowest = worse(estimates, key=lambda e: e.mean)
        return replace(
            slowest,
            low=worse(e.low for e in estimates),
            high=worse(e.high for e in estimates),
            origin=weakest(e.origin for e in estimates),
        )
    return Estimate.of_mean(
        math.fsum(e.mean for e in estimates),
        math.hypot(*(e.stderr for e in estimates)),
        min(e.n for e in estimates),
        origin=weakest(e.origin for e in estimates),
        scope=estimates[0].scope,
    )
