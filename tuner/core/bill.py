"""The bill: what exploring cost, what the held setting has saved since, and when it pays."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tuner.core.devices import MetricSample
from tuner.core.measurements import Estimate, Measurement, Origin
from tuner.core.plans import Context
from tuner.core.quantities import CAPACITY, ENERGY, POWER, UNDECLARED, Quantities, called
from tuner.core.studies import Revision
from tuner.core.trials import Phase, Trial

GAP_S = 300.0
"""The longest time that one held window may speak for."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Energy in joules over the whole study; None where no meter saw it.

    Trials that ended without a window (a refused setting, a crash) cost energy that nobody measured:
    they are counted in `trials` and not in `explored_j`.

    `explored_j` is all that was used in trial windows and between them, `overhead_j` how much of it
    the baseline would not have used for the same items (negative: exploring itself saved).
    `saving_w` is what the best setting saves while serving the baseline's rate, `break_even_s` how
    long it must run until the whole of `explored_j` is back. `saved_j` is what holding has saved by
    the windows that are kept, the oldest of which began at `saved_since`.
    """

    explored_j: float | None = None
    overhead_j: float | None = None
    saving_w: float | None = None
    saved_j: float | None = None
    saved_since: datetime | None = None
    break_even_s: float | None = None
    trials: int = 0
    seconds: float = 0.0
    origin: Origin | None = None


def draw_up(
    trials: Sequence[Trial],
    baseline: Mapping[str, Estimate],
    best: Mapping[str, Estimate],
    held: Sequence[MetricSample] = (),
    revisions: Sequence[Revision] = (),
    declared: Quantities = UNDECLARED,
    baseline_at: Callable[[Context], Mapping[str, Estimate]] | None = None,
) -> Bill:
    """Return the bill of a study from its trials, baseline, best setting, held windows and revisions.

    `held` is what the held windows showed of the energy of an item, by their start. `baseline_at` tells
    what the baseline showed at a load; a window at whose load it was not measured is left out of what
    was saved and of what exploring used more. Without it the baseline is the same at every load.
    A trial's energy is its mean power over window and overhead; windows without a power
    reading make the whole sum unknown rather than too small. A held window stands for the time since
    the one before it, at most `GAP_S`, where the study was holding all that time; else for itself.
    """
    windows = [t.measurement for t in trials if t.measurement is not None]
    seconds = math.fsum(w.seconds + w.overhead_s for w in windows)
    energy, power, capacity = (called(name, declared) for name in (ENERGY, POWER, CAPACITY))
    energies = [_energy_j(w, power) for w in windows]
    known = [e for e in energies if e is not None]
    if not windows or len(known) < len(windows) or energy not in baseline:
        return Bill(trials=len(trials), seconds=seconds)
    per_item = baseline[energy]
    explored = math.fsum(known)

    def more_j(context: Context, shown: float) -> float:
        """Return what an item took more than at the baseline under the same load; 0 where not known."""
        there = baseline if baseline_at is None else baseline_at(context)
        return shown - there[energy].mean if energy in there else 0.0

    overhead = math.fsum(
        more_j(t.ran_at, w.estimates[energy].mean) * w.load.completed
        for t in trials
        if (w := t.measurement) is not None and energy in w.estimates
    )
    gain = per_item.mean - best[energy].mean if energy in best else None
    rate = baseline[capacity].mean if capacity in baseline else None
    saving_w = gain * rate if gain is not None and rate is not None else None
    return Bill(
        explored_j=explored,
        overhead_j=overhead,
        saving_w=saving_w,
        saved_j=_saved_j(more_j, held, revisions) if held else None,
        saved_since=held[0].started_at if held else None,
        break_even_s=explored / saving_w if saving_w is not None and saving_w > 0.0 else None,
        trials=len(trials),
        seconds=seconds,
        origin=per_item.origin,
    )


def _saved_j(
    more_j: Callable[[Context, float], float],
    held: Sequence[MetricSample],
    revisions: Sequence[Revision],
) -> float:
    """Return what holding has saved by its windows, oldest first."""
    turns, runs = [r.at for r in revisions], _runs(revisions)
    saved, before, before_run = 0.0, None, None
    for window in held:
        turn = bisect_right(turns, window.started_at)
        run = runs[turn - 1] if turn else None
        speaks_s = window.seconds
        if before is not None and run is not None and run == before_run:
            since_s = (window.started_at - before.started_at).total_seconds()
            speaks_s = max(speaks_s, min(since_s, GAP_S))
        less_j = -more_j(window.context, window.mean)
        saved += less_j * window.completed / window.seconds * speaks_s
        before, before_run = window, run
    return saved


def _runs(revisions: Sequence[Revision]) -> list[datetime | None]:
    """Return since when the study had been holding at each revision, None where it was not."""
    runs: list[datetime | None] = []
    since = None
    for revision in revisions:
        since = (since or revision.at) if revision.study.phase is Phase.HOLDING else None
        runs.append(since)
    return runs


def _energy_j(window: Measurement, power: str) -> float | None:
    found = window.estimates.get(power)
    return None if found is None else found.mean * (window.seconds + window.overhead_s)
