"""Which setting to measure for the first time."""

from __future__ import annotations

import math
from collections import Counter

from torch import Tensor

from tuner.bo.acquisition import argmax, log_gain, within
from tuner.bo.search import WORTH, Search
from tuner.core import TrialState, Try, Verdict

PROBE_SHARE = 0.25
"""The share of the trials in which each knob is first turned by itself."""

LEAST_TRIALS = 8
"""The search does not end by itself before so many trials: early models are too sure."""

SAFE_DEVIATIONS = 1.0
"""Settings that keep every limit even so many standard deviations off come first."""

LEAST_CHANCE = 0.35
"""A setting less likely than this to keep the limits is not tried once another keeps them."""

LIKELY = 0.5
"""A measured setting at least so likely to keep the limits is searched on from, proven or not."""

FAMILIAR = 0.15
"""Settings whose objective is less certain than this (log units) come last: a wide guess far away
is no promise."""

MOST_FAILURES = 2
"""A setting that failed so often is given up."""

RETRY_CHANCE = 0.5
"""How likely a setting that failed once is thought to work."""


def explore(search: Search) -> Try | None:
    """Return the unmeasured setting that promises most, None where none promises enough.

    The likeliest to keep the limits while none does. Then each knob turned by itself, which teaches
    the models most. Then the greatest expected gain: safe and familiar settings before others.
    """
    allowed, chance = _allowed(search)
    best = _best(search)
    if best is None:
        row = argmax(chance, allowed, search.study.seed)
        why = "nothing keeps every limit yet; this is the likeliest to"
        return None if row is None else search.attempt(row, f"{why} ({search.percent(row)})")
    safe = allowed & within(search.view.belief, SAFE_DEVIATIONS)
    likely = allowed & (chance > math.log(LEAST_CHANCE))
    if search.spent < PROBE_SHARE * search.study.terms.trials:
        probe = _probe(search, safe, likely)
        if probe is not None:
            return probe
    gain = log_gain(search.view.belief, best) + chance - search.chance
    familiar = search.view.belief.sd[:, 0] <= FAMILIAR
    for rows in (safe & familiar, likely & familiar, safe, likely):
        row = argmax(gain, rows, search.study.seed)
        if row is not None and gain[row] > math.log(WORTH):
            return search.attempt(row, search.outlook(row))
    row = argmax(gain, likely, search.study.seed)
    if row is None or search.spent >= LEAST_TRIALS:
        return None
    return search.attempt(row, f"{search.outlook(row)}; too early to stop")


def _allowed(search: Search) -> tuple[Tensor, Tensor]:
    """Return which rows may be tried for the first time, and every row's chance to come out well.

    A setting that failed may be tried once more, at half its chance.
    """
    allowed = search.within.clone()
    allowed[list(search.view.measured)] = False
    chance = search.chance.clone()
    failures = Counter(_rows(search, TrialState.FAILED))
    for row, count in failures.items():
        allowed[row] &= count < MOST_FAILURES
        chance[row] += math.log(RETRY_CHANCE)
    allowed[_rows(search, TrialState.RUNNING)] = False
    return allowed, chance


def _rows(search: Search, *states: TrialState) -> list[int]:
    """Return the row of every trial in one of some states."""
    rows = [search.grid.row(t.setting) for t in search.trials if t.state in states]
    return [row for row in rows if row is not None]


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


def _probe(search: Search, safe: Tensor, likely: Tensor) -> Try | None:
    """Return a setting that differs from the baseline in one knob that was not yet turned alone.

    As far as is safe; where no step is, the shortest of the likely ones.
    """
    points = search.grid.points
    turned = points != points[search.baseline]
    alone = turned.sum(dim=1) == 1
    tried = _rows(search, *TrialState)
    away = (points - points[search.baseline]).abs().sum(dim=1)
    for column, knob in enumerate(search.grid.names):
        rows = alone & turned[:, column]
        if rows[tried].any():
            continue
        row = argmax(search.view.belief.sd[:, 0], rows & safe, search.study.seed)
        if row is None:
            row = argmax(-away, rows & likely, search.study.seed)
        if row is not None:
            return search.attempt(row, f"what {knob} does by itself: {search.outlook(row)}")
    return None
