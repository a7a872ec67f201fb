"""What a policy sees and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tuner.core.evidence import Evidence, counted, trials_spent, weigh
from tuner.core.goals import Limit
from tuner.core.knobs import Setting
from tuner.core.plans import Context, Plan
from tuner.core.studies import Study
from tuner.core.trials import Trial, TrialState


@dataclass(frozen=True, kw_only=True)
class Past:
    """All that a decision may read; no clock, no device.

    The study, its trials that still count (running ones too, by number) and the situation now. What
    follows from these is worked out when it is first asked for, and once.
    """

    study: Study
    trials: tuple[Trial, ...]
    context: Context = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", counted(self.study, self.trials))

    @cached_property
    def evidence(self) -> Evidence:
        """What the trials show."""
        return weigh(self.study, self.trials)

    @property
    def limits(self) -> tuple[Limit, ...] | None:
        """The limits in force; None while the baseline does not show them and the objective."""
        base = self.study.objective.score(self.evidence.baseline, self.context)
        return None if base is None else self.evidence.limits

    @cached_property
    def spent(self) -> int:
        """How many trials were spent on tuning."""
        return trials_spent(self.trials)

    @property
    def left(self) -> int:
        """How many tuning trials may still be spent; below zero where more were than are allowed."""
        return self.study.terms.trials - self.spent

    @property
    def running(self) -> bool:
        """Whether a trial has not ended yet."""
        return any(t.state is TrialState.RUNNING for t in self.trials)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a surrogate expects of a metric: mean and standard deviation, in the metric's unit.

    `sd` is the uncertainty of the underlying value, without the noise of one window.
    """

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class Try:
    """Measure this setting next. `predicted` is what the policy expects, for guard and operator."""

    setting: Setting
    why: str
    predicted: Mapping[str, Prediction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to try until something changes: a running trial ends, an hour passes."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """Enough is known: hold this plan once it is confirmed."""

    plan: Plan
    why: str


Suggestion = Try | Wait | Done
