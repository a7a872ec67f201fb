"""What a policy needs: a study's past, the suggestions it may return, and its optional declarations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

from tuner.core.estimates import Estimate
from tuner.core.evidence import Evidence, baseline_context, counted, is_at, trials_spent, weigh
from tuner.core.goals import Limit
from tuner.core.knobs import Setting, Value
from tuner.core.plans import Context, Plan, Row
from tuner.core.studies import Study
from tuner.core.trials import Trial, TrialState
from tuner.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Past:
    """All data that a decision may read; it has no access to clocks or devices.

    `study` is the study, `trials` are those that still count, by number: also running ones, but none of a
    setting that the devices no longer offer, and none that was aborted. `context` is the present load.
    `withdrawn` counts the spent tuning trials of settings no longer offered. Derived values are computed at
    their first use and kept.
    """

    study: Study
    trials: tuple[Trial, ...]
    context: Context = field(default_factory=dict)
    withdrawn: int = 0

    def __post_init__(self) -> None:
        trials = counted(self.study, self.trials)
        here = tuple(t for t in trials if self.study.space.has(t.setting))
        dropped = trials_spent(trials) - trials_spent(here)
        object.__setattr__(self, "trials", here)
        object.__setattr__(self, "withdrawn", self.withdrawn + dropped)

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence of the trials at the load of the latest baseline window."""
        return weigh(self.study, self.trials)

    def at(self, context: Context) -> Evidence:
        """Return the evidence of the trials at one load; `evidence` if the load is empty."""
        if not context:
            return self.evidence
        key = frozenset(context.items())
        if key not in self._at:
            self._at[key] = weigh(self.study, self.trials, context)
        return self._at[key]

    def behind(self, plan: Plan, row: Row) -> Evidence:
        """Return the evidence for a row of a plan: at its load if that has a baseline, else `evidence`."""
        at_load = self.at(plan.context(row))
        return at_load if at_load.baseline and at_load.limits is not None else self.evidence

    def baseline_at(self, context: Context) -> Mapping[str, Estimate]:
        """Return the baseline's estimates at a comparable load, empty if it was not measured at one."""
        return self.like(context).baseline

    def like(self, context: Context) -> Evidence:
        """Return the present evidence if it is comparable with a load, else that of the load."""
        return self.evidence if is_at(self._present, context) else self.at(context)

    @cached_property
    def _present(self) -> Context:
        """The load of the latest baseline window that did not request a load."""
        return baseline_context(self.study, self.trials)

    @cached_property
    def _at(self) -> dict[frozenset[tuple[str, float]], Evidence]:
        """The evidence computed so far, by load."""
        return {}

    @property
    def limits(self) -> tuple[Limit, ...] | None:
        """The limits in force.

        None until the baseline has the metrics of all relative limits and of the objective.
        """
        base = self.study.objective.score(self.evidence.baseline, self.context)
        return None if base is None else self.evidence.limits

    @cached_property
    def spent(self) -> int:
        """The number of trials spent on tuning."""
        return self.withdrawn + trials_spent(self.trials)

    @property
    def left(self) -> int:
        """The number of tuning trials left; negative if more were spent than allowed.

        A continuous study continues at a negative number, because only its policy ends it.
        """
        return self.study.terms.trials - self.spent

    @property
    def running(self) -> bool:
        """Whether a trial has not ended yet."""
        return any(t.state is TrialState.RUNNING for t in self.trials)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A surrogate's prediction of a metric: mean and standard deviation, in the metric's unit.

    `sd` is the uncertainty of the underlying value, without the noise of a window. The value is normally
    distributed, or its logarithm is, if `lognormal` is set.
    """

    mean: float
    sd: float
    lognormal: bool = False


@dataclass(frozen=True, slots=True)
class Try:
    """Measure this setting next. `predicted` is the policy's prediction, for the guard and the operator.

    `context` requests a load; empty: the load at the time. `plan` is a table with this setting at that
    load; the workload follows it, so that several settings are measured after one start.

    Raises:
        InvalidInput: a load is not finite.
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
    """Try nothing until a change, such as the end of a running trial or a new hour."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """End tuning: hold this plan once it is confirmed."""

    plan: Plan
    why: str


Suggestion = Try | Wait | Done


class Policy(Protocol):
    """Decides a study's steps by a pure function: the same past gives the same suggestion at any time."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next step: try a setting, wait, or be done with a plan."""


@runtime_checkable
class SaysWhatItHeeds(Protocol):
    """A policy that declares the parts of a study that it supports: `objective`, `constraints`, `safety`.

    A policy without this declaration supports the first two. To support `safety` a policy must predict the
    metrics of the settings that it tries. A study that requires an unsupported part is refused when it is
    created.
    """

    heeds: frozenset[str]


@runtime_checkable
class RefusesStudies(Protocol):
    """A policy that supports a part of a study in some forms only, and refuses the others."""

    def refuse(self, study: Study) -> None:
        """Check that the policy supports a study. Raises InvalidInput: names the unsupported part."""


@runtime_checkable
class DecidesSteps(Protocol):
    """A policy of continuous studies that judges steps by itself.

    If `needs_baseline` is false the baseline is measured only for limits that are relative to it. `goals`
    are metrics whose constraints apply to the whole course of the study and end it once they are met; no
    single setting is judged by them.
    """

    needs_baseline: bool
    goals: frozenset[str]


@runtime_checkable
class ExploresApart(Protocol):
    """A policy that can suggest while trials run, so that similar devices may each run their own trial.

    Running trials are in its past, without a measurement. It does not suggest their settings again, and its
    suggestions must be safe even if their results are never reported.
    """

    explores_apart: bool


@runtime_checkable
class FollowsLoad(Protocol):
    """A policy that proposes one setting, so that a study may follow a load: see `Terms.plan_by`."""

    follows_load: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedSetting:
    """A setting with its prediction, by metric and in the metric's unit.

    `chance` is the predicted probability that it keeps every limit. `refused` is why the policy would not
    try it; empty if it would.
    """

    setting: Setting
    predicted: Mapping[str, Prediction]
    chance: float
    refused: str = ""
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSlice:
    """The predicted effect of one knob with all others fixed: `points` has the setting of each value."""

    knob: str
    values: tuple[Value, ...]
    points: tuple[BelievedSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The present predictions of a policy. `through` is the setting that all slices contain.

    `refused` are the settings with the best predictions that the policy would not try, best first. `text`
    is the policy's next step, or the reason why it cannot explain anything yet. `query` is the prediction
    for the setting of the question; None without one, or if the model does not cover it.
    """

    text: str
    through: Setting = field(default_factory=dict)
    slices: tuple[KnobSlice, ...] = ()
    refused: tuple[BelievedSetting, ...] = ()
    query: BelievedSetting | None = None


@runtime_checkable
class Explains(Protocol):
    """A policy that can explain its predictions."""

    def explain(self, past: Past, query: Setting | None = None) -> Explanation:
        """Return the policy's explanation of a study, and of one setting; pure, like `suggest`."""
        ...
