"""The messages between agent, operator and tuner. Values of the vocabulary travel as they are.

Every message carries `protocol`. The tuner serves its own version and the one before, ignores
fields it does not know, and answers 426 to anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from tuner.bounds import bounded
from tuner.compat import StrEnum
from tuner.core import (
    LONGEST_S,
    AccessRole,
    Applied,
    BaselineShift,
    Bill,
    Device,
    Estimate,
    Explanation,
    Level,
    Limit,
    Measurement,
    Outcome,
    Phase,
    Plan,
    ProtocolMismatch,
    Quantity,
    Setting,
    Signal,
    Terms,
    TrialState,
    TunerReplica,
    Value,
    Verdict,
)

PROTOCOL = 1
SERVED = (PROTOCOL,)
"""Versions this side understands; a second release adds its predecessor."""
TOKEN_DAYS = 90
"""How long a person's token lasts, unless the admin says so."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0.0, le=LONGEST_S, allow_inf_nan=False)]
"""A length that a device is told to keep: NaN compares with nothing, so a wait for it never ends."""
LONGEST_POLL_S = 60.0
"""How long an agent may have the tuner wait for news before it answers."""


def check_protocol(protocol: int) -> None:
    """Return quietly when a message of this version is understood.

    Raises:
        ProtocolMismatch: it is not; the message names the versions that are.
    """
    if protocol not in SERVED:
        served = ", ".join(str(v) for v in SERVED)
        raise ProtocolMismatch(
            f"protocol {protocol} is not spoken here (only {served})",
            hint="upgrade the older side to the same release",
        )


class Message(BaseModel):
    """What every message has in common. Infinities travel as strings: JSON has none."""

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="ignore")

    protocol: int = PROTOCOL

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Refuse what is too long, or no text, and shorten sentences, before anything is made of it."""
        return bounded(data)


class OperatorView(Message):
    """What the tuner answers operators: as long as the fleet is large."""

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Leave an answer as it is."""
        return data


class Problem(Message):
    """Why a request was refused: a machine-readable code, what and where, and the next step."""

    code: str
    message: str
    hint: str = ""


# Agent to tuner


class Enrolment(Message):
    """An agent asks for a token of its own: its name, and the SHA-256 of the token it has made.

    The token itself never travels before it counts; asking again, after a lost answer, is no harm.
    """

    agent: str
    digest: str = Field(pattern="^[0-9a-f]{64}$")


class Enrolled(Message):
    """The tuner's answer: the agent's own token counts from now on."""

    agent: str


class Registration(Message):
    """An agent introduces a device and the workload on it."""

    device: Device


class Registered(Message):
    """The tuner's answer: how long a lease lasts and when to renew it."""

    lease_s: Seconds


class Poll(Message):
    """An agent asks what to do with a device, and says how it stands.

    `agent` is its name, a slash, and a word made anew at each of its starts: asking twice gives the
    same assignment, asking after a crash a further attempt.
    `holding` and `revision` name the hold in force (empty: none). The tuner waits up to `wait_s` for
    something new before it answers. `unable` says why the device takes no order now (empty: it does).
    """

    agent: str
    applied: Applied
    holding: str = ""
    revision: int = 0
    context: dict[str, Finite] = Field(default_factory=dict)
    wait_s: float = Field(default=0.0, ge=0.0, le=LONGEST_POLL_S)
    unable: str = ""


class Assignment(Message):
    """Try this setting: apply, settle, measure, report, under the lease that `token` names.

    `nonce` is that lease's secret: without it neither a renewal nor a report counts.
    `metrics` must be measured for the trial to be complete; `limits` are for aborting early;
    `context` is the load that is asked for, empty where any will do; `expected` the load that the window
    is to be compared with, empty where there is none.
    """

    kind: Literal["trial"] = "trial"
    study: str
    revision: int
    trial: int
    attempt: int
    token: int
    nonce: str
    lease_s: Seconds
    phase: Phase
    setting: Setting
    baseline: Setting
    metrics: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    window_s: Seconds
    max_window_s: Seconds
    context: Mapping[str, Finite] = Field(default_factory=dict)
    expected: Mapping[str, Finite] = Field(default_factory=dict)
    why: str = ""


class HoldOrder(Message):
    """Hold this plan, also without the tuner, for `valid_for_s`; observe it every `observe_s`.

    `limits` has those of each row of the plan, in order. Of windows that break none, one every
    `report_s` is enough: the tuner of a large fleet says so.
    """

    kind: Literal["hold"] = "hold"
    study: str
    revision: int
    plan: Plan
    baseline: Setting
    limits: tuple[tuple[Limit, ...], ...]
    metrics: tuple[str, ...]
    valid_for_s: Seconds
    observe_s: Seconds
    window_s: Seconds
    report_s: float = Field(default=0.0, ge=0.0, le=LONGEST_S, allow_inf_nan=False)

    @model_validator(mode="after")
    def _of_every_row(self) -> HoldOrder:
        if len(self.limits) != len(self.plan.rows):
            raise ValueError("an order to hold has the limits of every row of its plan")
        return self


class Idle(Message):
    """Nothing to do now; stay at the hold, or at what the device was before."""

    kind: Literal["idle"] = "idle"
    why: str = ""


class Release(Message):
    """No active study: end any hold and put the device back to its original setting."""

    kind: Literal["release"] = "release"
    why: str = ""


Order = Annotated[Assignment | HoldOrder | Idle | Release, Field(discriminator="kind")]
ORDER: TypeAdapter[Assignment | HoldOrder | Idle | Release] = TypeAdapter(Order)


class Renewal(Message):
    """An agent is still at work on a trial."""

    device: str
    token: int
    nonce: str


class TrialReport(Message):
    """How one device's attempt at a trial ended."""

    device: str
    study: str
    trial: int
    attempt: int
    token: int
    nonce: str
    outcome: Outcome


class StepReport(Message):
    """A step of a continuous study that an agent made by itself while the tuner was away.

    `key` is the agent's own word for it: the same step told twice is one.
    """

    device: str
    study: str
    key: str = Field(min_length=8, max_length=64, pattern="^[0-9a-zA-Z-]+$")
    setting: Setting
    outcome: Outcome


class Receipt(Message):
    """What became of a report: it closed the trial, waits for other devices, was late or known."""

    result: Literal["closed", "kept", "late", "duplicate"]


class HoldReport(Message):
    """One window measured while holding, or the end of a hold (`ended` says why)."""

    device: str
    study: str
    revision: int
    setting: Setting
    measurement: Measurement | None = None
    ended: str = ""


class Reverted(Message):
    """An operator put a device back on its host; `why` says so, and when, unlike any other time."""

    device: str
    why: str


# Operator to tuner and back


class StudyDraft(Message):
    """A study an operator asks for. Constraints and objective are text, as one types them.

    `choices` cuts knobs down to some of their values. `objective` is a metric, with `minimize ` or
    `maximize ` before it where it is not known which way it is better. What is left open the tuner
    chooses by the first device: without an objective the first of energy, CPU time and latency that it
    measures, without `constraints` (None) a limit of its latency; an empty list says that none is wanted.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="forbid")

    devices: tuple[str, ...]
    objective: str = ""
    constraints: tuple[str, ...] | None = None
    policy: str = "polythrottle"
    seed: int = 0
    terms: Terms = Terms()
    choices: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    who: str = "operator"


class Change(Message):
    """An operator's change of a study: who, and why."""

    who: str = "operator"
    why: str = ""


class ConstraintChange(Change):
    """All constraints a study has from now on, as text."""

    constraints: tuple[str, ...]


class Decision(Change):
    """An operator's yes or no to what a study proposes.

    `revision` is the study's that was seen, None for whatever it proposes now.
    """

    revision: int | None = None


class TokenDraft(Message):
    """A token the admin asks for. Only one that enrols an agent may be left without a name.

    `days` is how long a person's lasts; 0 is until it is revoked. One that enrols lasts a day.
    """

    name: str = ""
    role: Literal[AccessRole.VIEWER, AccessRole.OPERATOR, AccessRole.ADMIN, AccessRole.ENROL]
    days: int = Field(default=TOKEN_DAYS, ge=0, le=3650)


class TokenView(OperatorView):
    """A token as the admin sees it; `state` is `in force`, `used`, `expired` or `revoked`."""

    name: str
    role: AccessRole
    state: str
    created_at: datetime
    expires_at: datetime | None = None


class NewToken(TokenView):
    """A token that was just made: the only time it is shown."""

    token: str


class SettingView(OperatorView):
    """A setting and what is known of it."""

    setting: Setting
    metrics: dict[str, Estimate]
    verdict: Verdict | None = None
    windows: int = 0


class ConstraintPreview(OperatorView):
    """What other constraints would change: `judged` trials by verdict, before and after.

    `flipped` are the trials whose verdict would be another. The study would be in `phase` then;
    `stays` says that it goes on as it is, else `more_trials` are ahead.
    """

    study: str
    constraints: tuple[str, ...]
    judged: int
    before: dict[str, int]
    after: dict[str, int]
    flipped: tuple[int, ...]
    best_before: SettingView | None
    best_after: SettingView | None
    phase: Phase
    stays: bool
    more_trials: int


class TrialView(OperatorView):
    """A trial as operators see it; the verdict is derived, not stored.

    `context` is the load that was asked for; empty: whatever ran. `device` is the one that tries it alone;
    empty: all of the study's do. `foreign` is the share of the machine that others used, none where nobody
    could tell; `notes` say in words what qualifies the window, by subject.
    """

    study: str
    number: int
    attempt: int
    device: str = ""
    phase: Phase
    state: TrialState
    setting: Setting
    context: dict[str, float] = Field(default_factory=dict)
    verdict: Verdict | None = None
    metrics: dict[str, Estimate] = Field(default_factory=dict)
    started_at: datetime
    ended_at: datetime | None = None
    censored: bool = False
    foreign: float | None = 0.0
    throttled: tuple[str, ...] = ()
    notes: dict[str, str] = Field(default_factory=dict)
    why: str = ""
    reason: str = ""


class ExplanationView(OperatorView):
    """What a study's policy believes by its trials; `explained` is false where it cannot say."""

    study: str
    policy: str
    explained: bool
    quantities: dict[str, Quantity] = Field(default_factory=dict)
    metrics: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    explanation: Explanation


class Violations(OperatorView):
    """How often a study broke its limits: `broken` of `tried` windows away from the baseline.

    A window counts as broken where it alone proves that a limit was; `seconds` is how long these
    windows lasted. `rate` is None before anything was tried. `held` windows of its holds broke a limit,
    too, of those that are kept; counted in a report only.
    """

    tried: int = 0
    broken: int = 0
    rate: float | None = None
    seconds: float = 0.0
    held: int = 0


class StudyView(OperatorView):
    """A study as operators see it: what is asked, where it stands, and the best so far.

    `error` says why the rest cannot be shown (empty: it can); one bad study never hides the others.
    `unmet` is a limit that what is held is proven to break, `offline` names its devices that are not
    heard of, `signals` are what its plan can go by, `unable` says why one of them takes no orders, and
    `stopped` that nothing runs until the stop of all devices is lifted.
    """

    id: str
    devices: tuple[str, ...]
    workload: str
    policy: str
    seed: int
    objective: str
    constraints: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    phase: Phase
    phase_why: str = ""
    error: str = ""
    revision: int
    terms: Terms
    settings: int
    trials: dict[str, int]
    baseline: SettingView
    best: SettingView | None = None
    violations: Violations = Violations()
    plan: Plan | None = None
    unmet: Limit | None = None
    offline: tuple[str, ...] = ()
    unable: str = ""
    stopped: bool = False
    quantities: dict[str, Quantity] = Field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    created_at: datetime


class StudyReport(OperatorView):
    """The end of a study: what was gained, what it cost, and what went wrong.

    `baseline` and `best` are what they showed against each other, in `alternating` windows where the
    study came to that, else in all their windows. `saving` is the share by which the best's
    objective is better, with its standard error; where no share makes sense, as the objective is not
    above 0 at the baseline, `difference` says by how much, in the metric's unit. `limit_kept` None where
    nothing can be said.
    """

    study: StudyView
    baseline: SettingView
    best: SettingView | None = None
    alternating: bool = False
    saving: Estimate | None = None
    difference: Estimate | None = None
    baseline_shift: BaselineShift | None = None
    limit_kept: bool | None = None
    bill: Bill
    origins: dict[str, str]
    failures: tuple[TrialView, ...] = ()


class RevisionView(OperatorView):
    """One revision of a study; `reason` is why it was in its phase then, whatever the revision changed."""

    revision: int
    who: str
    why: str
    at: datetime
    phase: Phase
    reason: str = ""
    constraints: tuple[str, ...]


class DeviceView(OperatorView):
    """A device as operators see it: what it is, what can be set and measured, what is applied.

    `online` is false once its agent has said nothing for longer than a lease: what is `applied` is
    then only what was last heard. `unable` says why it takes no orders (empty: it does). `context` is
    the load that its agent told of at `context_at`, since this tuner was started.
    """

    device: Device
    applied: Applied | None = None
    study: str = ""
    last_seen: datetime
    online: bool
    unable: str = ""
    context: dict[str, float] = {}
    context_at: datetime | None = None


class Health(StrEnum):
    """How a device stands, in a word."""

    SAFE = "safe"
    """At its original setting, and nothing is tried."""
    TRYING = "trying"
    HOLDING = "holding"
    PROPOSED = "proposed"
    """A setting waits for an operator's yes."""
    PAUSED = "paused"
    STOPPED = "stopped"
    """All devices are."""
    LIMIT_NOT_MET = "limit not met"
    OFFLINE = "offline"


class Savings(OperatorView):
    """What holding has saved, in joules with their standard error, and by the operator's constants.

    `uncounted` studies hold a plan on several devices together: what those save is in no sum.
    """

    joules: float
    stderr_j: float
    kwh: float
    cost: float | None = None
    currency: str = ""
    co2e_g: float | None = None
    uncounted: int = 0


class FleetRow(OperatorView):
    """A device among all: how it stands, what is applied against its default, what its study saves.

    `saving` is the share by which the objective is better; None, as `saved_j`, where nobody knows (yet),
    and where what saves is not applied now.
    `error` says why the study cannot be read or worked out (empty: it can).
    """

    device: str
    board: str
    workload: str
    health: Health
    unable: str = ""
    shared: str = ""
    study: str = ""
    phase: Phase | None = None
    setting: Setting | None = None
    default: Setting
    level: Level | None = None
    last_seen: datetime
    energy_origin: str = ""
    error: str = ""
    saving: Estimate | None = None
    saved_j: float | None = None
    saved_stderr_j: float | None = None


class FleetView(OperatorView):
    """All devices, how many stand how, and what was saved; of `pending` studies that is not known yet."""

    rows: tuple[FleetRow, ...]
    health: dict[str, int]
    stopped: bool
    studies: int
    pending: int = 0
    saved: Savings | None = None


class StoppedDevice(OperatorView):
    """A device while all are stopped: back at its original setting, not yet, or not to be reached."""

    device: str
    state: Literal["original", "not yet", "offline"]
    last_seen: datetime


class ReplicaView(OperatorView):
    """A tuner of a database, and how long ago it told of itself, in seconds."""

    replica: TunerReplica
    told_s: float


class StopView(OperatorView):
    """Whether every device is stopped: since when, by whom, why, and how far that has come."""

    in_force: bool
    at: datetime | None = None
    who: str = ""
    why: str = ""
    devices: tuple[StoppedDevice, ...] = ()
