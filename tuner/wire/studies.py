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
    Setting,
    Signal,
    Terms,
    TrialState,
    Verdict,
)
from tuner.wire.message import OperatorView, SentPlan, Shown

__all__ = [
    "ConstraintEffect",
    "ConstraintPreview",
    "ConstraintRevision",
    "ExplanationView",
    "HeldUnder",
    "PlanRowView",
    "RevisionView",
    "SettingView",
    "StudyReport",
    "StudyView",
    "TrialView",
    "Violations",
]


class SettingView(OperatorView):
    """A setting and the data on it."""

    setting: Setting
    metrics: dict[str, Estimate]
    verdict: Verdict | None = None
    windows: int = 0


class ConstraintPreview(OperatorView):
    """What other constraints would change: `judged` trials by verdict, before and after.

    `flipped` are the trials whose verdict would be another. The study would be in `phase` then;
    `stays` says that it continues as it is, else `more_trials` are ahead.
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
    """A held setting under some constraints: its metrics, the limits then, and its saving.

    `saving` is the share by which the objective is better than the baseline's; None for the baseline
    itself, and where it was not measured.
    """

    setting: SettingView
    limits: tuple[Limit, ...] = ()
    saving: Estimate | None = None


class ConstraintEffect(OperatorView):
    """What a change of the constraints did.

    `result` is `kept` (the held setting stayed), `other` or `same` (the study searched again and then
    held another setting, or the same), `searching` (it still does) or `ended` (it was stopped, or its
    constraints changed again, before). `before` is None where no setting was held then; `after` was
    held from `held_at` on.
    """

    result: Literal["kept", "other", "same", "searching", "ended"]
    before: HeldUnder | None = None
    after: HeldUnder | None = None
    held_at: datetime | None = None


class ConstraintRevision(OperatorView):
    """A revision that set a study's constraints; `effect` is None for the first, with which it was made."""

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

    `context` is the load that was requested, or that a plan follows, as measured; empty: whatever ran.
    `device` is the one that tries it alone; empty: all of the study's do. `foreign` is the share of the
    machine that others used, none where it is unknown; `notes` say in words what qualifies the window,
    by subject.
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
    """What a study's policy believes by its trials; `explained` is false where it cannot say.

    `correlations` are each measured metric's rank correlation with the objective over its trials.
    """

    study: str
    policy: str
    explained: bool
    quantities: dict[str, Quantity] = Field(default_factory=dict)
    metrics: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    explanation: Explanation
    correlations: dict[str, float] = Field(default_factory=dict)


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
    """A study as operators see it: its request, its status, and the best so far.

    `error` says why the rest cannot be shown (empty: it can); one bad study never hides the others.
    `unmet` is a limit that the held setting is proven to break, `offline` names its devices that are not
    heard of, `signals` are what its plan can go by, `unable` says why one of them takes no orders, and
    `stopped` that nothing runs until the stop of all devices is lifted. `waits` is the freeze or the
    window that it waits for; it holds meanwhile. `capped` says which budget leaves a device too few watts
    for its limits. `confirmed` is the setting that won its confirming windows, whether or not it is
    applied now; None where the baseline stays.
    """

    id: str
    devices: tuple[str, ...]
    workload: str
    policy: str
    seed: int
    objective: str
    second_objective: str = ""
    constraints: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    phase: Phase
    phase_why: Shown = ""
    error: Shown = ""
    revision: int
    terms: Terms
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
    """What a row of a plan rests on: what its setting and the baseline showed at its load.

    `at` is that load, none where it is any; `windows` how many of the setting's own count. `saving` is the
    share by which the objective is better than at the baseline, none where nothing tells.
    """

    setting: Setting
    at: float | None = None
    windows: int = 0
    limits: tuple[Limit, ...] = ()
    metrics: dict[str, Estimate] = Field(default_factory=dict)
    baseline: dict[str, Estimate] = Field(default_factory=dict)
    saving: Estimate | None = None


class StudyReport(OperatorView):
    """The end of a study: what was gained, what it cost, and what went wrong.

    `baseline` and `best` are what they showed against each other, in `alternating` windows where the
    study came to that, else in all their windows. `saving` is the share by which the best's
    objective is better, with its standard error; where no share makes sense, as the objective is not
    above 0 at the baseline, `difference` says by how much, in the metric's unit. `limit_kept` None where
    it is unknown. `rows` are those of a plan of several, in its order.
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
    """One revision of a study; `reason` is why it was in its phase then, whatever the revision changed."""

    revision: int
    who: str
    why: str
    at: datetime
    phase: Phase
    reason: str = ""
    constraints: tuple[str, ...]
