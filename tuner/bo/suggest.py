"""The next setting to try: constrained Bayesian optimisation over the settings of a space."""

from __future__ import annotations

from collections.abc import Callable, Set

from tuner.bo.beliefs import believe
from tuner.bo.encoding import Grid
from tuner.bo.ending import ending
from tuner.bo.explore import explore
from tuner.bo.nearby import searched
from tuner.bo.search import Search
from tuner.core import Done, Past, Plan, Setting, Suggestion, TrialState, Wait


def suggest(
    past: Past, *, within: Callable[[Setting], bool] | None = None, without: Set[str] = frozenset()
) -> Suggestion:
    """Return the next setting to try, or the end of the search.

    A pure function of study, trials and seed. It waits until the baseline is measured. It explores
    while some setting promises enough; `tuner.bo.ending` has the reasons for an end. Then it proposes
    the measured setting of the best predicted objective that is likely enough to keep its limits, or
    the baseline. `within` limits the settings to try next, as in one stage of a search in several. All
    trials remain evidence, and the proposed setting may lie outside it. Rules named in `without` are
    left out. Trials that failed, were aborted or contaminated give no value of a metric.

    Raises:
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    study = past.study
    if past.limits is None:
        return Wait("the baseline has not been measured yet")
    if past.left <= 0 and past.running:
        return Wait("the last trial is still running")
    if study.space.size == 1:
        return Done(Plan.single(study.baseline), "there is only one setting")
    search = search_of(past, within)
    chosen = explore(search, without) if past.left > 0 else None
    if chosen is None and past.running:
        return Wait("waiting for running trials")
    if chosen is None:
        return _done(search, ending(search, without))
    return chosen


def search_of(past: Past, within: Callable[[Setting], bool] | None = None) -> Search:
    """Return the state of a search, over the whole space or, if it is too large, its promising part."""
    study, evidence = past.study, past.evidence
    running = [t.setting for t in past.trials if t.state is TrialState.RUNNING]

    def look(grid: Grid) -> Search:
        view = believe(study, evidence, grid, running)
        return Search(past, grid, view, within)

    return searched(study, [c.setting for c in evidence.candidates], look, running)


def _done(search: Search, why: str) -> Done:
    """Propose the best deployable setting, or the baseline."""
    best, broken = search.deployable[0], search.evidence.broken
    if best != search.baseline:
        reason = search.outlook(best)
    elif broken is None:
        reason = "no setting is likely better than the baseline"
    else:
        reason = f"no measured setting is likely to meet every limit; the baseline breaks {broken.in_short}"
    return Done(Plan.single(search.grid.settings[best]), f"{why}; {reason}")
