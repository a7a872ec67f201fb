"""The next setting to try: constrained Bayesian optimisation over an enumerated space."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from tuner.bo.beliefs import believe
from tuner.bo.encoding import enumerate_grid
from tuner.bo.explore import explore
from tuner.bo.proof import usual_gap, windows_to_proof
from tuner.bo.search import WORTH, Search, trials_spent
from tuner.core import (
    Done,
    Past,
    Plan,
    Setting,
    Suggestion,
    TrialState,
    Try,
    Wait,
    counted,
    incumbent,
    ranked,
    weigh,
)


def suggest(past: Past, *, within: Callable[[Setting], bool] | None = None) -> Suggestion:
    """Return what to try next, or that nothing more is worth trying.

    `within` limits what may be tried next, a stage of a search in several; all trials are evidence
    all the same, and what is proposed in the end may lie outside it.

    A pure function of study, trials and seed. Waits until the baseline is measured. Explores while
    something promises enough; when trials run out or nothing does, promising settings whose limits
    are not proven yet are measured again; then proposes the best proven setting, or the baseline.
    Trials that failed, were aborted or contaminated say nothing about a metric.

    Raises:
        InvalidInput: the space is too large to enumerate.
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    study = past.study
    trials = counted(study, past.trials)
    evidence = weigh(study, trials)
    if evidence.limits is None or study.objective.metric not in evidence.baseline:
        return Wait("the baseline has not been measured yet")
    running = any(t.state is TrialState.RUNNING for t in trials)
    if trials_spent(trials) >= study.terms.trials and running:
        return Wait("the last trial is still running")
    if study.space.size == 1:
        return Done(Plan.single(study.baseline), "there is only one setting")
    grid = enumerate_grid(study.space)
    view = believe(study, evidence, evidence.limits, grid)
    stage = [within is None or within(setting) for setting in grid.settings]
    search = Search(study, trials, evidence, evidence.limits, grid, view, torch.tensor(stage))
    if search.left <= 0:
        return _done(search, f"all {study.terms.trials} trials are used")
    just_enough = _proof(search, least=search.left)
    chosen = just_enough or explore(search) or _proof(search)
    if chosen is not None:
        return chosen
    return Wait("waiting for running trials") if running else _done(search, "little more to gain")


def _proof(search: Search, *, least: int = 1) -> Try | None:
    """Return the best setting that the trials left can prove, in at least so many windows."""
    metric, sign = search.study.objective.metric, search.study.objective.sign
    best = incumbent(search.study, search.evidence)
    shown = best.estimates if best is not None else search.evidence.baseline
    bar = sign * shown[metric].mean
    gaps = {x.metric: usual_gap(search.evidence, x) for x in search.limits}
    running = [t for t in search.trials if t.state is TrialState.RUNNING]
    found: list[tuple[float, int]] = []
    for row, candidate in search.view.measured.items():
        if not search.within[row]:
            continue
        if metric not in candidate.estimates or any(t.tries(candidate.setting) for t in running):
            continue
        needed = windows_to_proof(candidate, search.limits, gaps)
        value = sign * candidate.estimates[metric].mean
        better = value < bar - WORTH * abs(bar)
        if better and needed is not None and least <= needed <= search.left:
            found.append((value, row))
    if not found:
        return None
    row = min(found)[1]
    return search.attempt(row, f"{search.outlook(row)}; measured again, to prove it")


def _done(search: Search, why: str) -> Done:
    """Propose the proven setting of the greatest expected gain over the baseline, or the baseline.

    Expected: gain times the chance to prove the limits once more in fresh windows, so that a setting
    that merely was lucky at the edge does not go first.
    """
    study, metric = search.study, search.study.objective.metric
    start = search.evidence.baseline[metric].mean
    best, most = None, 0.0
    for candidate in ranked(study, search.evidence):
        row = search.grid.row(candidate.setting)
        if row is None:
            continue
        gain = study.objective.sign * (start - candidate.estimates[metric].mean)
        if gain * math.exp(float(search.chance[row])) > most:
            best, most = row, gain * math.exp(float(search.chance[row]))
    if best is None:
        return Done(Plan.single(study.baseline), f"{why}; nothing feasible beats the baseline")
    return Done(Plan.single(search.grid.settings[best]), f"{why}; {search.outlook(best)}")
