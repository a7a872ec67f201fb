"""Messages to operators: studies."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from tuner.core import (
    BaselineShift,
    Bill,
    Estimate,
    Explanation,
    Exploration,
    Limit,
    Phase,
    Quantity,
    Requested,
    Setting,
    Signal,
    TrialState,
    Verdict,
)
from tuner.wire.message import OperatorView, SentPlan, Shown


class SettingView(OperatorView):
    """A setting with its measured metrics, its verdict and its number of windows."""

    setting: Setting
    metrics: dict[str, Estimate]
    verdict: Verdict | None = None
    windows: int = 0


class ConstraintPreview(OperatorView):
    """The effect of other constraints: `judged` trials by verdict, before and after.

    `flipped` are the trials whose verdict would change. The study would be in `phase`. `stays`: it would
    continue in its phase with its plan; otherwise it would run up to `more_trials` more trials.
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


class HeldUnder(OperatorView):
    """A held setting under some constraints: its metrics, its limits then, and its saving.

    `saving` is the share by which the objective is better than at the baseline; None for the baseline
    itself, and if it was not measured.
    """

    setting: SettingView
    limits: tuple[Limit, ...] = ()
    saving: Estimate | None = None


class ConstraintEffect(OperatorView):
    """The effect of a change of the constraints.

    `result` is `kept` (the held setting stayed), `other` or `same` (the study searched again and then
    held another setting, or the same), `searching` (it still searches) or `ended` (it was stopped, or its
    constraints changed again, before it held a setting). `before` is None if no setting was held then;
    `after` was held from `held_at` on.
    """

    result: Literal["kept", "other", "same", "searching", "ended"]
    before: HeldUnder | None = None
    after: HeldUnder | None = None
    held_at: datetime | None = None


class ConstraintRevision(OperatorView):
    """A revision that set a study's constraints; `effect` is None for the first revision of the study."""

    revision: int
    who: str
    why: str
    at: datetime
    constraints: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    effect: ConstraintEffect | None = None


class TrialView(OperatorView):
    """A trial as operators see it; the verdict is derived, not stored.

    `context` is the requested load, or the measured value of the signal that a plan follows; empty: any
    load. `device` is the device that runs the trial alone; empty: all devices of the study run it.
    `foreign` is the share of the machine used by other processes; None if unknown. `notes` are remarks
    that qualify the window, by subject.
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
    """A policy's model of a study, from its trials; `explained` is false if the policy has no such model.

    `query` is the setting of the question with its measurements, `why_not` why it is not `held`, the best
    setting. `correlations` are each measured metric's rank correlation with the objective over the trials.
    """

    study: str
    policy: str
    explained: bool
    quantities: dict[str, Quantity] = Field(default_factory=dict)
    metrics: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    explanation: Explanation
    held: SettingView | None = None
    query: SettingView | None = None
    why_not: str = ""
    correlations: dict[str, float] = Field(default_factory=dict)


class Violations(OperatorView):
    """How often a study broke its limits: `broken` of `tried` windows away from the baseline.

    A window counts as broken if it proves by itself that a limit was broken; `seconds` is the length of
    these windows together. `rate` is None before the first trial. `held` is the number of stored windows
    of its holds that broke a limit; it is counted in a report only.
    """

    tried: int = 0
    broken: int = 0
    rate: float | None = None
    seconds: float = 0.0
    held: int = 0


class StudyView(OperatorView, Requested):  # type: ignore[misc] # pydantic freezes it
    """A study as operators see it: its request, its status, and the best setting so far.

    `error` is the reason why the rest cannot be shown, empty if it can; a faulty study never hides the
    others. `unmet` is a limit that the held setting is proven to break. `offline` are its devices without
    contact. `signals` are those that its plan can follow. `unable` is the reason why one of its devices
    accepts no orders. `stopped`: nothing runs until the stop of all devices is lifted. `waits` is the
    freeze or the window that it waits for; a hold continues meanwhile. `capped` names the budget that
    leaves a device too few watts for its limits. `confirmed` is the setting that won its confirming
    windows, applied now or not; None if the baseline stays.
    """

    id: str
    devices: tuple[str, ...]
    workload: str
    objective: str
    second_objective: str = ""
    constraints: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    phase: Phase
    phase_why: Shown = ""
    error: Shown = ""
    revision: int
    exploration: Exploration = Exploration()
    group: str = ""
    settings: int
    conditions: tuple[str, ...] = ()
    trials: dict[str, int]
    baseline: SettingView
    best: SettingView | None = None
    violations: Violations = Violations()
    plan: SentPlan | None = None
    confirmed: Setting | None = None
    unmet: Limit | None = None
    offline: tuple[str, ...] = ()
    unable: str = ""
    stopped: bool = False
    waits: str = ""
    capped: str = ""
    quantities: dict[str, Quantity] = Field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    created_at: datetime


class PlanRowView(OperatorView):
    """The evidence for a row of a plan: the metrics of its setting and of the baseline at its load.

    `at` is that load, None for any load; `windows` is the number of counted windows of the setting.
    `saving` is the share by which the objective is better than at the baseline, None if unknown.
    """

    setting: Setting
    at: float | None = None
    windows: int = 0
    limits: tuple[Limit, ...] = ()
    metrics: dict[str, Estimate] = Field(default_factory=dict)
    baseline: dict[str, Estimate] = Field(default_factory=dict)
    saving: Estimate | None = None


class StudyReport(OperatorView):
    """The result of a study: its saving, its cost and its failures.

    `baseline` and `best` are measured against each other in `alternating` windows if the study ran those,
    else they come from all their windows. `saving` is the share by which the best setting's objective is
    better, with its standard error. No share makes sense if the objective is not above 0 at the baseline:
    `difference` is then the gain in the metric's unit. `limit_kept` is None if unknown. `rows` are those
    of a plan of several rows, in its order.
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
    rows: tuple[PlanRowView, ...] = ()


class RevisionView(OperatorView):
    """One revision of a study; `why` is the reason of the change, `reason` that of its phase then."""

    revision: int
    who: str
    why: str
    at: datetime
    phase: Phase
    reason: str = ""
    constraints: tuple[str, ...]


class EvidenceArchive(OperatorView):
    """The evidence of a study as a ZIP archive in base64, and its SHA-256 in hexadecimal."""

    study: str
    sha256: str
    content: str
