"""The next trial, and the plan, if the load is an input: a window at one load informs about others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from functools import cached_property

import torch

from tuner import guard
from tuner.bo.beliefs import believe
from tuner.bo.encoding import Grid, grid_of
from tuner.bo.explore import explore
from tuner.bo.nearby import searched
from tuner.bo.rows import LEAST_PAY, LoadLevel, held_up_to, plan_of
from tuner.bo.search import MOST_WINDOWS, Search
from tuner.bo.suggest import suggest
from tuner.core import (
    CAPACITY,
    LOAD_REACH,
    LOAD_STEP,
    RISE_WINDOWS,
    Candidate,
    Done,
    Evidence,
    LoadHistory,
    Past,
    Phase,
    Plan,
    SettingKey,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Verdict,
    Wait,
    band_edges,
    called,
    is_at,
    is_near,
    load_band,
    pool_windows,
    setting_key,
    windows,
)

BASELINE_TRIES = 2
"""After this number of baseline windows without a result at a load, the load is skipped: it may,
for example, have too few requests."""

MOST_LOADS = 6
"""The number of loads that trials may use, those with most of the time first: more would take
more windows than a study has."""

OF_A_LOAD, OF_A_LOAD_S = MOST_LOADS, 3600.0
"""The most trials of each knob at one load that trials cannot set, or the seconds of them if these are
more trials. All loads share the trials, and a window may last an hour."""


def suggest_by_load(past: Past, without: Set[str] = frozenset()) -> Suggestion:
    """Return the next trial for the plan of a study's terms, or the plan.

    A pure function of study, trials, the present load and the history of loads. With one load it
    decides as `tuner.bo.suggest.suggest`. Else it works load by load. If trials can set the load, the
    loads with most of the time come first, else the present load.

    Raises:
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    study = past.study
    if past.limits is None:
        return Wait("the baseline has not been measured yet")
    if study.space.size == 1:
        return Done(Plan.single(study.baseline), "one setting only")
    loads = _Loads(past)
    if not loads.askable and loads.by not in past.context:
        return Wait(f"the agent does not report {loads.by}; check the load signal of the target")
    if not loads.seen:
        return suggest(past, without=without)
    if loads.one:
        return loads.only(suggest(past, without=without), max(loads.due))
    for load in loads.due if past.left > 0 else ():
        chosen = loads.next_at(load, without)
        if chosen is not None and not (load > loads.due[-1] and loads.just_tried(chosen)):
            return chosen
    if past.running:
        return Wait("waiting for running trials")
    why = "little gain is left" if past.left > 0 else f"all {study.terms.trials} trials are used"
    return loads.done(why)


class _Loads:
    """The loads of a study's windows, and the search at each load."""

    def __init__(self, past: Past) -> None:
        self.past, self.by = past, past.study.terms.plan_by
        self.askable = self.by in past.study.askable

    @cached_property
    def seen(self) -> tuple[tuple[float, Trial], ...]:
        """The windows that report their load."""
        ran = [(t.ran_at.get(self.by, 0.0), t) for t in self.past.trials if t.state.evidence]
        return tuple((load, trial) for load, trial in ran if load > 0.0)

    @cached_property
    def due(self) -> tuple[float, ...]:
        """The loads for trials: those with most of the time, else those that a window may meet now."""
        if not self.askable:
            return self.past.ahead(self.by)
        seconds = self.past.loads.seconds
        bands = sorted(seconds, key=lambda band: -seconds[band])
        centres = self._distinct(math.sqrt(math.prod(band_edges(band))) for band in bands)
        return tuple(centres[:MOST_LOADS]) or (self.seen[-1][0],)

    @property
    def one(self) -> bool:
        """Whether all loads are in one band: from window to window the load changes little then."""
        loads = [*(load for load, _ in self.seen), *self.due]
        return max(loads) <= LOAD_STEP * min(loads)

    def _alike(self, load: float, other: float) -> bool:
        """Return whether two loads count as the same."""
        return is_at({self.by: load}, {self.by: other})

    def _distinct(self, loads: Iterable[float]) -> list[float]:
        """Return the first of all loads that are alike."""
        distinct: list[float] = []
        for load in loads:
            if not any(self._alike(load, other) for other in distinct):
                distinct.append(load)
        return distinct

    def only(self, answer: Suggestion, load: float) -> Suggestion:
        """Return a suggestion for the only load; above it the baseline is held."""
        if isinstance(answer, Try) and self.askable:
            return replace(answer, context={self.by: load})
        if isinstance(answer, Done):
            setting = answer.plan.rows[0].setting
            return Done(held_up_to(setting, load, self.by, self.past.study.space), answer.why)
        return answer

    def next_at(self, load: float, without: Set[str]) -> Try | None:
        """Return the next trial at a load, judged at the upper end of its row; None for no trial."""
        study, at = self.past.study, {self.by: load}
        where, context = f"at {self.by} = {load:.4g}: ", at if self.askable else {}
        if not self._judged(self._evidence(load)):
            tried = windows(self.past.trials, study.baseline, at=at)
            if len(tried) >= BASELINE_TRIES or self._missed:
                return None
            return Try(study.baseline, f"{where}the baseline is measured first", context=context)
        if not self.askable and self._spent(load):
            return None
        search = self._search(load, LOAD_REACH)
        chosen = explore(search, without)
        if chosen is None or guard.risk(study, search.evidence, chosen.predicted):
            return None
        return replace(chosen, why=where + chosen.why, context=context)

    @property
    def _missed(self) -> bool:
        """Whether enough of the latest trials were of the baseline: its load may not come again."""
        latest = [t for t in self.past.trials[-RISE_WINDOWS:] if t.phase is Phase.TUNING]
        own = [t for t in latest if t.tries(self.past.study.baseline)]
        return not self.askable and len(own) >= BASELINE_TRIES

    def _spent(self, load: float) -> bool:
        """Return whether a load had its share of the trials; those cut short do not count."""
        study, knobs = self.past.study, len(self.past.study.space.knobs)
        tuned = [t for at, t in self.seen if t.phase is Phase.TUNING and self._alike(at, load)]
        own = [t for t in tuned if t.solid and not t.tries(study.baseline)]
        spent_s = math.fsum(t.measurement.seconds for t in own if t.measurement)
        return len(own) >= OF_A_LOAD * knobs and spent_s >= OF_A_LOAD_S * knobs

    def just_tried(self, chosen: Try) -> bool:
        """Return whether the latest trial was of this setting, which means that its load did not come."""
        return not self.askable and self.past.trials[-1].tries(chosen.setting)

    def _evidence(self, load: float) -> Evidence:
        """Return the evidence at a load; without a baseline there, with the baseline of a load near it.

        If baselines missed their load, the nearest load with a baseline is used. No other baseline is
        used if a limit is relative.
        """
        own, study = self.past.at({self.by: load}), self.past.study
        if self._judged(own) or any(c.relative for c in study.constraints):
            return own
        loads = [at for at, t in self.seen if t.solid and t.tries(study.baseline)]
        nearest = min(loads, key=lambda at: abs(math.log(at / load)), default=math.inf)
        if not (self._missed and loads) and not is_near(nearest, load):
            return own
        near = self.past.at({self.by: nearest})
        baseline = near.of(study.baseline)
        measured = own.candidates if baseline is None else (*own.candidates, baseline)
        return replace(own, baseline=near.baseline, limits=near.limits, candidates=measured)

    def _judged(self, evidence: Evidence) -> bool:
        """Return whether the baseline shows the limits at a load, and the objective."""
        objective = self.past.study.objective.score(evidence.baseline)
        return objective is not None and evidence.limits is not None

    def _search(self, load: float, reach: float = 1.0, measured: Grid | None = None) -> Search:
        """Return the search at a load, with predictions at `reach` times the load.

        With `measured` it is over these settings only.
        """
        past, study, evidence = self.past, self.past.study, self._evidence(load)
        running = [t.setting for t in past.trials if t.state is TrialState.RUNNING]
        often = set() if self.askable or measured is not None else self._often(load)
        fresh = (lambda s: setting_key(s) not in often) if often else None

        def look(grid: Grid) -> Search:
            kept = self.askable and measured is None
            over, readings = over_loads(grid, reach * load, self.seen, kept)
            view = believe(study, evidence, over, running, readings)
            solid = (over.row(c.setting) for c in readings.values() if c.deployable)
            elsewhere = tuple(dict.fromkeys(row for row in solid if row is not None))
            return Search(past, over, view, fresh, judged=evidence, elsewhere=elsewhere)

        if measured is not None:
            return look(measured)
        return searched(study, [t.setting for _, t in self.seen], look, running)

    def _often(self, load: float) -> set[SettingKey]:
        """Return the settings that have enough windows near a load: further ones may not meet it either."""
        near = Counter(
            setting_key(t.setting)
            for at, t in self.seen
            if t.phase is Phase.TUNING and is_near(at, load)
        )
        return {key for key, count in near.items() if count >= MOST_WINDOWS}

    def done(self, why: str) -> Done:
        """Return the plan by load, from the measured settings at each distinct load of whole windows."""
        space = self.past.study.space
        loads = self._distinct(sorted((load for load, t in self.seen if t.solid), reverse=True))
        tried = {setting_key(s): s for s in (space.default, *(t.setting for _, t in self.seen))}
        grid = grid_of(space, tuple(tried.values()))
        levels = [level for load in loads if (level := self._level(load, grid)) is not None]
        plan = plan_of(self._weighed(levels), self.by, space)
        return Done(plan, f"{why}; from {len(self.seen)} windows at {len(loads)} loads")

    def _level(self, load: float, grid: Grid) -> LoadLevel | None:
        """Return the expected costs, at a load, of the settings that may be held there.

        A setting whose confirmation has begun is preferred to one that saves little more.
        """
        evidence = self._evidence(load)
        if not self._judged(evidence):
            return None
        search = self._search(load, measured=grid)
        cost, home = search.view.cost, search.baseline
        begun = {setting_key(t.setting) for t in self.past.trials if t.phase is Phase.CONFIRMING}
        costs = {
            key: math.exp(float(cost[row] - cost[home])) - LEAST_PAY * (key in begun)
            for row in search.deployable[:-1]
            for key in [setting_key(grid.settings[row])]
        }
        rate = evidence.baseline.get(called(CAPACITY, self.past.study.quantities))
        own = self.past.study.objective.score(evidence.baseline)
        return LoadLevel(load, (rate.mean if rate else 1.0) * abs(own.mean if own else 1.0), costs)

    def _weighed(self, levels: Sequence[LoadLevel]) -> list[LoadLevel]:
        """Return the levels, each weighted by the time at its load or nearest to it, from below."""
        history = self.past.loads
        if not history.seconds:
            lasted = ((load, t.measurement.seconds) for load, t in self.seen if t.measurement)
            history = LoadHistory.of(lasted)
        seconds = dict.fromkeys((level.load for level in levels), 0.0)
        for band, lasted_s in history.seconds.items():
            load = min((x for x in seconds if load_band(x) >= band), default=None)
            if load is not None:
                seconds[load] += lasted_s
        return [replace(level, weight=level.weight * seconds[level.load]) for level in levels]


def over_loads(
    grid: Grid, load: float, windows: Sequence[tuple[float, Trial]], kept: bool = False
) -> tuple[Grid, dict[int, Candidate]]:
    """Return a grid at a load with the measurements at all loads, and the readings by row.

    First come the settings at that load, then each measured setting at the load of each of its
    windows. `kept` is whether the laws at that load are cached, as the load will come again.
    """
    groups: dict[tuple[SettingKey, float], list[Trial]] = {}
    for at, trial in windows:
        if (key := setting_key(trial.setting)) in grid.rows:
            groups.setdefault((key, at), []).append(trial)
    reference, count = windows[0][0], len(grid.settings)
    rows = torch.tensor([*range(count), *(grid.rows[key] for key, _ in groups)])
    loads = torch.tensor([load] * count + [at for _, at in groups], dtype=torch.float64) / reference
    over = replace(
        grid,
        settings=tuple(grid.settings[row] for row in rows.tolist()),
        points=grid.points[rows],
        places=torch.cat([grid.places[rows], loads.log()[:, None]], dim=1),
        ratios=grid.ratios[rows],
        load=loads,
        alike=grid if kept else None,
    )
    readings = {count + n: _candidate(trials) for n, trials in enumerate(groups.values())}
    return over, readings


def _candidate(trials: Sequence[Trial]) -> Candidate:
    """Return the measurements of one setting at one load, not judged by the limits."""
    shown = pool_windows([t.shown for t in trials])
    solid = any(t.solid for t in trials)
    return Candidate(trials[0].setting, shown, tuple(trials), Verdict.UNSURE, solid)
