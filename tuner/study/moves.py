"""The steps that a study can take, and helpers for every phase."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tuner import guard
from tuner.core import (
    Candidate,
    Context,
    Evidence,
    Past,
    Phase,
    Plan,
    Row,
    Safety,
    Setting,
    Study,
    Trial,
    Try,
    ranked,
    windows,
)

LIMIT_NOT_MET = "LIMIT NOT MET"
"""Start of the reason if the held setting breaks a limit."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Run a trial of this setting in the study's present phase; `context` requests a load.

    With a `plan` its table is followed, and the setting is that of its row at the load, else its first
    row's.
    """

    setting: Setting
    why: str
    context: Context = field(default_factory=dict)
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Go to another phase."""

    phase: Phase
    why: str
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until something changes."""

    why: str


Step = Assign | Move | Rest


def hold_baseline(study: Study, evidence: Evidence, why: str) -> Move:
    """Return the move to holding the baseline; its reason reports a limit that this breaks."""
    limit = evidence.broken
    if limit is not None:
        shown = evidence.baseline[limit.metric].mean
        at = f"{limit.metric} {shown:.4g}, the limit is {limit.op} {limit.value:.4g}"
        doing = "proposing" if study.terms.safety is Safety.ADVISE else "holding"
        why = f"{LIMIT_NOT_MET}: {doing} the baseline ({at}); {why}"
    return Move(Phase.HOLDING, why, Plan.single(study.baseline))


def needed_metrics(study: Study) -> tuple[str, ...]:
    """Return the metrics that a window must have to count as evidence for the study."""
    second = [study.second_objective.metric] if study.second_objective else []
    names = [study.objective.metric, *second, *(c.metric for c in study.constraints)]
    return tuple(dict.fromkeys(names))


def of_this_phase(study: Study, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials since the study last entered its phase."""
    return windows(trials, phase=study.phase, since=study.phase_since)


def refusal_of(past: Past, trials: Sequence[Trial], suggestion: Try) -> str | None:
    """Return why the guard does not let a suggestion be tried; None if it does."""
    study, evidence = past.study, past.at(suggestion.context)
    objection = guard.objection(study, evidence, trials, suggestion.setting)
    return objection or guard.risk(study, evidence, suggestion.predicted)


def rivals(study: Study, evidence: Evidence) -> list[Candidate]:
    """Return the feasible candidates other than the baseline, best first."""
    return [c for c in ranked(study, evidence) if not study.rests(c.setting)]


def in_words(context: Context) -> str:
    """Return a load as text."""
    return ", ".join(f"{name} = {value:g}" for name, value in context.items())


def without(study: Study, plan: Plan, lost: Collection[int]) -> Plan | None:
    """Return a plan with the baseline instead of the lost rows; None if no other row is left.

    A reason against a row is none against the others.
    """
    if not lost:
        return plan
    rows: list[Row] = []
    for number, row in enumerate(plan.rows):
        kept = replace(row, setting=study.baseline) if number in lost else row
        if rows and study.rests(kept.setting) and study.rests(rows[-1].setting):
            rows.pop()
        rows.append(kept)
    return (
        None if all(study.rests(row.setting) for row in rows) else replace(plan, rows=tuple(rows))
    )
