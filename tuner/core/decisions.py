"""What a policy sees and what it may answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tuner.core.evidence import (
    Evidence,
    baseline_context,
    counted,
    is_at,
    trials_spent,
    weigh,
)
from tuner.core.goals import Limit
from tuner.core.knobs import Setting
from tuner.core.loads import LoadHistory, load_turns, loads_ahead
from tuner.core.measurements import Estimate
from tuner.core.plans import Context, Plan, Row
from tuner.core.studies import Study
from tuner.core.trials import Phase, Trial, TrialState
from tuner.errors import InvalidInput

__all__ = ["Done", "Past", "Prediction", "Suggestion", "Try", "Wait"]


@dataclass(frozen=True, kw_only=True)
class Past:
    """All that a decision may read; no clock, no device.

    The study, its trials that still count (running ones too, by number; none of a setting that its devices
    offer no more), the situation now, and for how long each load of a plan's signal was seen. `withdrawn`
    counts the tuning trials of settings no more offered: they were spent. What follows from these is worked
    out when it is first asked for, and once.
    """

    study: Study
    trials: tuple[Trial, ...]
    context: Context = field(default_factory=dict)
    loads: LoadHistory = field(default_factory=LoadHistory)
    withdrawn: int = 0

    def __post_init__(self) -> None:
        trials = counted(self.study, self.trials)
        here = tuple(t for t in trials if self.study.space.has(t.setting))
        dropped = trials_spent(trials) - trials_spent(here)
        object.__setattr__(self, "trials", here)
        object.__setattr__(self, "withdrawn", self.withdrawn + dropped)

    @cached_property
    def evidence(self) -> Evidence:
        """What the trials show."""
        return weigh(self.study, self.trials)

    def at(self, context: Context) -> Evidence:
        """Return what the trials show of one load; of no load in particular, what they show."""
        if not context:
            return self.evidence
        key = frozenset(context.items())
        if key not in self._at:
            self._at[key] = weigh(self.study, self.trials, context)
        return self._at[key]

    def ahead(self, by: str) -> tuple[float, ...]:
        """Return the loads that a window may meet if it begins now, the likeliest last.

        A burst in a window of an earlier phase explains nothing, except the baseline's: a hold between
        them may have lasted for days.
        """
        own = self._with_load(by)[-1:]
        recent = any(t.number >= self.study.phase_since or t.phase is Phase.BASELINE for t in own)
        return loads_ahead(self.context.get(by, 0.0), by, self._windows(by), recent=recent)

    def moves(self, by: str) -> bool:
        """Return whether the load goes up and down from window to window: it turned twice lately."""
        return load_turns(by, self._windows(by)) > 1

    def _windows(self, by: str) -> list[tuple[Context, float]]:
        """Return the loads of windows and their seconds."""
        return [(t.ran_at, t.measurement.seconds) for t in self._with_load(by) if t.measurement]

    def _with_load(self, by: str) -> list[Trial]:
        """Return the trials that show a load; those that requested theirs say nothing."""
        shown = [t for t in self.trials if t.state.evidence and not t.context and t.measurement]
        return [t for t in shown if t.ran_at.get(by, 0.0) > 0.0]

    def expecting(self, by: str) -> Past:
        """Return the past with the likeliest load of a window as the present one."""
        ahead = self.ahead(by)
        return replace(self, context={**self.context, by: ahead[-1]}) if ahead else self

    def near(self, context: Context) -> Past:
        """Return the past with the windows of one load alone; the trials of others stay spent."""
        mine = [t for t in self.trials if t.state is TrialState.RUNNING or is_at(t.ran_at, context)]
        return replace(self, trials=tuple(mine), withdrawn=self.spent - trials_spent(mine))

    def behind(self, plan: Plan, row: Row) -> Evidence:
        """Return the basis of a row of a plan: the evidence at its load, where the baseline is."""
        at_load = self.at(plan.context(row))
        return at_load if at_load.baseline and at_load.limits is not None else self.evidence

    def baseline_at(self, context: Context) -> Mapping[str, Estimate]:
        """Return what the baseline showed at a load that may be compared with this one; nothing else."""
        if is_at(self._present, context):
            return self.evidence.baseline
        return self.at(context).baseline

    @cached_property
    def _present(self) -> Context:
        """The load of the latest baseline window that was not asked for one."""
        return baseline_context(self.study, self.trials)

    @cached_property
    def _at(self) -> dict[frozenset[tuple[str, float]], Evidence]:
        return {}

    @property
    def limits(self) -> tuple[Limit, ...] | None:
        """The limits in force; None while the baseline does not show them and the objective."""
        base = self.study.objective.score(self.evidence.baseline, self.context)
        return None if base is None else self.evidence.limits

    @cached_property
    def spent(self) -> int:
        """How many trials were spent on tuning."""
        return self.withdrawn + trials_spent(self.trials)

    @property
    def left(self) -> int:
        """How many tuning trials may still be spent; below zero where more were than are allowed.

        A continuous study continues below zero: only its policy ends it.
        """
        return self.study.terms.trials - self.spent

    @property
    def running(self) -> bool:
        """Whether a trial has not ended yet."""
        return any(t.state is TrialState.RUNNING for t in self.trials)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a surrogate expects of a metric: mean and standard deviation, in the metric's unit.

    `sd` is the uncertainty of the underlying value, without the noise of one window. The value is
    normally distributed, or its logarithm where `lognormal` is set.
    """

    mean: float
    sd: float
    lognormal: bool = False


@dataclass(frozen=True, slots=True)
class Try:
    """Measure this setting next. `predicted` is what the policy expects, for guard and operator.

    `context` asks for a load; empty: whatever runs. `plan` is a table with this setting at that load: the
    workload follows it, so that several settings are measured at one start. Raises InvalidInput: a load
    that is not finite.
    """

    setting: Setting
    why: str
    predicted: Mapping[str, Prediction] = field(default_factory=dict)
    context: Context = field(default_factory=dict)
    plan: Plan | None = None

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.context.values())):
            raise InvalidInput(f"a load of {dict(self.context)} cannot be generated")


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to try until something changes: a running trial ends, an hour passes."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """No more trials are needed: hold this plan once it is confirmed."""

    plan: Plan
    why: str


Suggestion = Try | Wait | Done
