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
from tuner.service.clock.schedule import _held_row
from tuner.service.views import row_views
from tuner.study import assignments, control
from tuner.study.lifecycle import next_step

RATE = "arrival_rate_per_s"
LOADS = {"": (50.0,), RATE: (10.0, 12.0, 15.0, 30.0, 33.0, 50.0)}
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
    rows = (Row(20.0, setting(600)), Row(math.inf, setting()))
    plan = Plan(rows, by, eager=True) if by else Plan.single(setting(600))
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
        found["expected"] = [_held_row(past, at.plan, row) for row in at.plan.rows]
        found["order"] = assignments.hold(at, trials, at.plan)
    outgrown = [assignments.outgrown(at, trials, setting(mhz)) for mhz in (600, 800)]
    return found | {"outgrown": outgrown, "shifts": control.baseline_shifts(at, trials)}


@pytest.mark.parametrize(("by", "askable"), [("", False), (RATE, True), (RATE, False)])
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
