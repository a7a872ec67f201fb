"""Which trials are evidence for a question: the one selector, and the rules by which loads compare."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from tuner.core.knobs import Setting
from tuner.core.loads import PEAK, at_equal_load
from tuner.core.plans import ANYWHERE, Context
from tuner.core.studies import Study
from tuner.core.trials import Phase, Trial, TrialState

__all__ = [
    "LOAD_BAND",
    "Worth",
    "baseline_context",
    "comparable",
    "counted",
    "is_at",
    "is_like",
    "trials_spent",
    "unlike",
    "windows",
]

LOAD_BAND = 0.2
"""Windows whose loads differ by more than this share are not compared with each other."""


def counted(study: Study, trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials that still count for the study, in order of number.

    Trials that were aborted from outside are left out: they show nothing of their setting. So are control
    windows: they serve the bill alone, and must not change the limits of a hold. If the study follows a
    load, all windows are moved to its mean.
    """
    own = [t for t in trials if t.number >= study.since_trial and not t.control]
    own.sort(key=lambda t: t.number)
    left, by = [t for t in own if t.state is not TrialState.ABORTED], study.terms.plan_by
    return at_equal_load(left, by, study.quantities) if by else tuple(left)


class Worth(IntEnum):
    """How much a trial shows; each includes the next ones."""

    BEGUN = 0
    ENDED = 1
    """Also without a result: failed or contaminated."""
    EVIDENCE = 2
    """Measured, maybe with too few data for a verdict."""
    COMPLETED = 3
    """Measured, maybe cut short for breaking a limit."""
    SOLID = 4


WORTH = {
    TrialState.RUNNING: Worth.BEGUN,
    TrialState.INCONCLUSIVE: Worth.EVIDENCE,
    TrialState.COMPLETED: Worth.SOLID,
}


def windows(
    trials: Iterable[Trial],
    *settings: Setting,
    phase: Phase | None = None,
    since: int = 1,
    requested: Context | None = None,
    at: Context = ANYWHERE,
    least: Worth = Worth.BEGUN,
) -> list[Trial]:
    """Return the trials of any of these settings, all without one, that pass every given rule.

    `requested` is the exact requested load, `at` a load that they were measured at; `since` is the first
    number.
    """
    return [
        t for t in trials
        if phase in (None, t.phase) and t.number >= since and requested in (None, t.context)
        and _worth(t) >= least and (not settings or any(map(t.tries, settings)))
        and (not at or is_at(t.ran_at, at))
    ]  # fmt: skip


def _worth(trial: Trial) -> Worth:
    """Return the worth of a trial as evidence."""
    return Worth.COMPLETED if trial.censored else WORTH.get(trial.state, Worth.ENDED)


def trials_spent(trials: Iterable[Trial]) -> int:
    """Return the number of counted trials that were spent on tuning."""
    return len(windows(trials, phase=Phase.TUNING))


def unlike(context: Context, other: Context) -> str | None:
    """Return the first signal in which two loads differ, None if their windows may be compared.

    Only signals that both loads have are compared, and peaks are ignored.
    """
    for name in sorted(context.keys() & other.keys()):
        value, beside = context[name], other[name]
        if name.endswith(PEAK):
            continue
        if abs(value - beside) > LOAD_BAND * max(abs(value), abs(beside)):
            return name
    return None


def comparable(context: Context, other: Context) -> bool:
    """Return whether windows measured under two loads may be compared."""
    return unlike(context, other) is None


def is_at(measured_at: Context, context: Context) -> bool:
    """Return whether a window's load has every signal of another load and is comparable with it."""
    return context.keys() <= measured_at.keys() and comparable(measured_at, context)


def is_like(measured_at: Context, at: Context, present: Context) -> bool:
    """Return whether a window is at a load, if one was requested, else comparable with the present load."""
    return is_at(measured_at, at) if at else comparable(measured_at, present)


def baseline_context(study: Study, trials: Iterable[Trial]) -> Context:
    """Return the load of the latest baseline window without a requested load; empty if not measured."""
    solid = windows(counted(study, trials), study.baseline, requested=ANYWHERE, least=Worth.SOLID)
    return solid[-1].ran_at if solid else ANYWHERE
