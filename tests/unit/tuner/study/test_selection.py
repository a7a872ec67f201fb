"""Trials that are no evidence change no answer, whichever part of a study asks."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from policies import load_policy
from tests.builders import START, Descend, setting, study, trial, window
from tuner.core import (
    PLANNED,
    Context,
    Past,
    Phase,
    Plan,
    Policy,
    Row,
    Signal,
    Study,
    Terms,
    Trial,
    TrialState,
)
from tuner.service.clock.schedule import HeldRow, _held_row
from tuner.service.plan_views import row_views
from tuner.study import assignments, control
from tuner.study.follow import why_grow
from tuner.study.lifecycle import next_step

RATE, HOUR = "arrival_rate_per_s", "hour"
LOADS = {"": (50.0,), RATE: (10.0, 12.0, 15.0, 30.0, 33.0, 50.0), HOUR: (2.0, 6.0, 14.0, 22.0)}
ENDS = (*[TrialState.COMPLETED] * 6, TrialState.FAILED, TrialState.INCONCLUSIVE)
PHASES = (Phase.TUNING, Phase.CONFIRMING, Phase.CONFIRMING, Phase.HOLDING)


def measured(draw: random.Random, number: int, by: str, askable: bool) -> Trial:
    """Return a trial of any phase, at any load, ended in any way; a fifth was aborted from outside."""
    phase = draw.choice(PHASES) if number > 3 else Phase.BASELINE
    at = setting(draw.choice((1000, 800, 600)) if phase in PHASES[:3] else 1000)
    state = draw.choice(ENDS) if draw.random() < 0.8 else TrialState.ABORTED
    load, clock = draw.choice(LOADS[by]), float(at["gpu.clock_mhz"]) / 1000.0
    energy_j = (4.0 + 6.0 * clock**2) * draw.gauss(1.0, 0.01)
    seen = window(energy_j, 100.0 / clock**0.4, context={by or RATE: load})
    requested = {by: load} if askable and phase is not Phase.BASELINE else {}
    ended = trial(
        number, at, seen if state.evidence else None, phase=phase, state=state, context=requested
    )
    return replace(ended, started_at=START + timedelta(minutes=number))


def drawn(draw: random.Random, by: str, askable: bool) -> tuple[Study, list[Trial]]:
    tops = (8.0, 16.0) if by == HOUR else (20.0, 40.0)
    rows = [Row(top, setting(mhz), at=top - 2.0) for top, mhz in zip(tops, (600, 800), strict=True)]
    plan = Plan((*rows, Row(math.inf, setting())), by) if by else Plan.single(setting(600))
    phase = draw.choice((*PHASES, Phase.BASELINE))
    at = study(
        phase,
        plan=plan if phase in PLANNED else None,
        terms=Terms(trials=draw.choice((4, 40)), plan_by=by),
        signals=(Signal(RATE, "1/s", askable),),
        since_trial=draw.choice((1, 2)),
        phase_since=draw.choice((1, 8)),
    )
    return at, [measured(draw, n, by, askable) for n in range(1, draw.randint(4, 24))]


def answers(at: Study, trials: list[Trial], now: Context, policy: Policy) -> Mapping[str, object]:
    """Return everything that follows from a study's trials."""
    past = Past(study=at, trials=tuple(trials), context=now)
    found: dict[str, object] = {"step": next_step(past, policy), "rows": row_views(past)}
    if at.plan is not None:
        found["grows"] = why_grow(past, policy)
        found["expected"] = [_held_row(past, at.plan, row) for row in at.plan.rows]
        found["order"] = assignments.hold(at, trials, at.plan)
    outgrown = [assignments.outgrown(at, trials, setting(mhz)) for mhz in (600, 800)]
    return found | {"outgrown": outgrown, "shifts": control.baseline_shifts(at, trials)}


@pytest.mark.parametrize(
    ("by", "askable"), [("", False), (RATE, True), (RATE, False), (HOUR, False)]
)
def test_a_trial_that_was_aborted_or_no_longer_counts_changes_no_answer(
    by: str, askable: bool
) -> None:
    for seed in range(120):
        draw = random.Random(f"{by} {askable} {seed}")
        at, trials = drawn(draw, by, askable)
        now = {by: draw.choice(LOADS[by])} if by else {}
        policy = load_policy("polythrottle") if seed < 6 else Descend()
        counts = [t for t in trials if t.number >= at.since_trial]
        counts = [t for t in counts if t.state is not TrialState.ABORTED]
        assert answers(at, trials, now, policy) == answers(at, counts, now, policy), seed


@pytest.mark.parametrize("by", [RATE, HOUR])
def test_a_held_row_is_expected_to_use_what_its_own_load_used(by: str) -> None:
    """Windows at other loads say nothing about drift: neither of the row, nor of the held setting."""
    rows = (Row(8.0, setting(600), at=6.0), Row(math.inf, setting(600, 2), at=14.0))
    plan = Plan(rows, by)
    at = study(Phase.HOLDING, plan=plan, terms=Terms(trials=4, plan_by=by))
    seen = [(6.0, 5.0), (14.0, 9.0)] * 3
    trials = [
        trial(n, setting(600), window(joules, context={by: load}), phase=Phase.CONFIRMING)
        for n, (load, joules) in enumerate(seen, 1)
    ]
    held = _held_row(Past(study=at, trials=tuple(trials)), plan, rows[0])
    assert isinstance(held, HeldRow)
    assert held.expected.mean == pytest.approx(5.0)
    assert held.at == {by: 6.0}
