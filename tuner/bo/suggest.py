"""The next setting to try: constrained Bayesian optimisation over an enumerated space."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from tuner.bo.acquisition import argmax, log_feasible, log_gain, within
from tuner.bo.beliefs import View, believe
from tuner.bo.encoding import Grid, enumerate_grid
from tuner.bo.proof import usual_gap, windows_to_proof
from tuner.core import (
    Done,
    Evidence,
    Limit,
    Past,
    Phase,
    Plan,
    Setting,
    Study,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Verdict,
    Wait,
    counted,
    incumbent,
    ranked,
    weigh,
)

WORTH = 0.001
"""An expected gain below this share of the baseline is not worth a window."""

LEAST_TRIALS = 8
"""The search does not end by itself before so many trials: early models are too sure."""

SAFE_DEVIATIONS = 1.0
"""Settings that keep every limit even so many standard deviations off come first."""

LEAST_CHANCE = 0.35
"""A setting less likely than this to keep the limits is not tried once another keeps them."""

LIKELY = 0.5
"""A measured setting at least so likely to keep the limits is searched on from, proven or not."""

MOST_FAILURES = 2
"""A setting that ended so often without a measurement is given up."""

RETRY_CHANCE = 0.5
"""How likely a setting that failed once is thought to work."""


@dataclass(frozen=True, slots=True)
class Search:
    """Everything a decision rests on, derived from the past."""

    study: Study
    trials: tuple[Trial, ...]
    evidence: Evidence
    limits: tuple[Limit, ...]
    grid: Grid
    view: View
    chance: Tensor
    """Logarithm of the probability that a row keeps every limit, and provably so."""

    @property
    def left(self) -> int:
        """How many trials may still be spent."""
        return trials_left(self.study, self.trials)


def suggest(past: Past) -> Suggestion:
    """Return what to try next, or that nothing more is worth trying.

    A pure function of study, trials and seed. Until the baseline is measured it waits. The likeliest
    setting to keep the limits comes first while none does; then the one of the greatest expected
    gain, safe ones before risky ones; when nothing promises more or trials run out, promising
    settings whose limits are not proven yet are measured again. Trials that failed, were aborted or
    contaminated say nothing about a metric.

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
    left = trials_left(study, trials)
    if left <= 0 and running:
        return Wait("the last trial is still running")
    grid = enumerate_grid(study.space)
    view = believe(study, evidence, evidence.limits, grid)
    search = Search(study, trials, evidence, evidence.limits, grid, view, log_feasible(view.belief))
    if left <= 0:
        return _done(search, f"all {study.terms.trials} trials are used")
    chosen = _last_proof(search) or _exploration(search) or _proof(search, most=left)
    if chosen is not None:
        return chosen
    return Wait("waiting for running trials") if running else _done(search, "little more to gain")


def trials_left(study: Study, trials: tuple[Trial, ...]) -> int:
    """Return how many tuning trials the study may still spend."""
    spent = [t for t in trials if t.phase is Phase.TUNING and t.state is not TrialState.ABORTED]
    return study.terms.trials - len(spent)


def _last_proof(search: Search) -> Try | None:
    """Return a setting to measure again when the trials left are just enough to prove it."""
    return _proof(search, most=search.left, least=search.left)


def _proof(search: Search, *, most: int, least: int = 1) -> Try | None:
    """Return the best setting that needs between `least` and `most` further windows of proof."""
    metric, sign = search.study.objective.metric, search.study.objective.sign
    best = incumbent(search.study, search.evidence)
    shown = best.estimates if best is not None else search.evidence.baseline
    bar = sign * shown[metric].mean
    gaps = {x.metric: usual_gap(search.evidence, x) for x in search.limits}
    found: list[tuple[float, int]] = []
    for row, candidate in search.view.measured.items():
        needed = windows_to_proof(candidate, search.limits, gaps)
        if needed is None or not least <= needed <= most or metric not in candidate.estimates:
            continue
        value = sign * candidate.estimates[metric].mean
        if value < bar - WORTH * abs(bar) and not _running(search, candidate.setting):
            found.append((value, row))
    if not found:
        return None
    row = min(found)[1]
    return _try(search, row, f"{_outlook(search, row)}; measured again, to prove its limits")


def _exploration(search: Search) -> Try | None:
    """Return the unmeasured setting that promises most, None where none promises enough."""
    allowed, chance = _allowed(search)
    seed = search.study.seed
    best = _best(search)
    if best is None:
        row = argmax(chance, allowed, seed)
        why = "nothing keeps every limit yet; this is the likeliest to"
        return None if row is None else _try(search, row, f"{why} ({_percent(search, row)})")
    gain = log_gain(search.view.belief, best) + chance - search.chance
    likely = allowed & (chance > math.log(LEAST_CHANCE))
    safe = allowed & within(search.view.belief, SAFE_DEVIATIONS)
    for rows in (safe, likely):
        row = argmax(gain, rows, seed)
        if row is not None and gain[row] > math.log(WORTH):
            return _try(search, row, _outlook(search, row))
    row = argmax(gain, likely, seed)
    if row is None or search.study.terms.trials - search.left >= LEAST_TRIALS:
        return None
    return _try(search, row, f"{_outlook(search, row)}; too early to stop")


def _allowed(search: Search) -> tuple[Tensor, Tensor]:
    """Return which rows may be tried for the first time, and every row's chance to come out well.

    A setting that failed may be tried once more, at half its chance.
    """
    allowed = torch.ones(len(search.grid.settings), dtype=torch.bool)
    allowed[list(search.view.measured)] = False
    chance = search.chance.clone()
    fruitless = Counter(
        row
        for trial in search.trials
        if trial.state is TrialState.FAILED and (row := search.grid.row(trial.setting)) is not None
    )
    for row, count in fruitless.items():
        allowed[row] &= count < MOST_FAILURES
        chance[row] += math.log(RETRY_CHANCE)
    for trial in search.trials:
        row = search.grid.row(trial.setting)
        if row is not None and trial.state is TrialState.RUNNING:
            allowed[row] = False
    return allowed, chance


def _best(search: Search) -> float | None:
    """Return the best believed objective of a setting that keeps its limits, or likely does.

    What is likely but not proven counts too: searching on from there costs no proof.
    """
    rows = [
        row
        for row, c in search.view.measured.items()
        if c.verdict is Verdict.FEASIBLE
        or (c.verdict is Verdict.UNSURE and search.chance[row] > math.log(LIKELY))
    ]
    if not rows:
        return None
    believed = search.view.belief.mean[rows, 0]
    return float(believed.min() if search.view.belief.minimize else believed.max())


def _done(search: Search, why: str) -> Done:
    """Return the proven setting of the greatest expected gain over the baseline, or the baseline.

    Expected: gain times the chance to prove the limits once more in fresh windows, so that a setting
    that merely was lucky at the edge does not go first.
    """
    study, metric = search.study, search.study.objective.metric
    start = search.evidence.baseline[metric].mean
    options = [
        (
            study.objective.sign
            * (start - c.estimates[metric].mean)
            * math.exp(search.chance[row]),
            row,
        )
        for c in ranked(study, search.evidence)
        if (row := search.grid.row(c.setting)) is not None
    ]
    gain, row = max(options, default=(0.0, None), key=lambda option: option[0])
    if row is None or gain <= 0.0:
        return Done(
            Plan.single(study.baseline), f"{why}; nothing feasible is better than the baseline"
        )
    return Done(Plan.single(search.grid.settings[row]), f"{why}; {_outlook(search, row)}")


def _try(search: Search, row: int, why: str) -> Try:
    return Try(search.grid.settings[row], why, search.view.predicted(row))


def _running(search: Search, setting: Setting) -> bool:
    return any(t.state is TrialState.RUNNING and t.tries(setting) for t in search.trials)


def _outlook(search: Search, row: int) -> str:
    """Return in words what is expected of a row."""
    metric = search.study.objective.metric
    start = search.evidence.baseline[metric].mean
    change = search.view.predicted(row)[metric].mean / start - 1.0 if start else 0.0
    side = "below" if change < 0.0 else "above"
    return (
        f"{metric} should be {abs(change):.1%} {side} the baseline, "
        f"with a chance of {_percent(search, row)} to keep every limit"
    )


def _percent(search: Search, row: int) -> str:
    return f"{math.exp(search.chance[row]):.0%}"
