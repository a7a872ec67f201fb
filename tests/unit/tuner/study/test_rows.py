"""A plan's rows while they are held: each with the limits of its load, each watched for drift."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.builders import completed, device, past, setting, study, trial, window
from tests.unit.tuner.study.worlds import World
from tuner.core import Constraint, Limit, Observation, Phase, Plan, Row, Setting, Signal, Trial
from tuner.service.clock.schedule import Maintenance
from tuner.service.views import unmet
from tuner.study import assignments

BY = "requests_in_system"
ROWS = (
    Row(3.0, setting(600), at=2.0),
    Row(6.0, setting(800), at=4.0),
    Row(12.0, setting(600), at=8.0),
    Row(math.inf, setting(), at=16.0),
)
PLAN = Plan(ROWS, BY)


def energy_j(row: Row) -> float:
    """Return the energy per item of a row's setting at the row's load."""
    assert row.at is not None
    return float(row.setting["gpu.clock_mhz"]) / 100.0 + row.at


def at_load(number: int, at: Setting, row: Row, latency_ms: float) -> Trial:
    assert row.at is not None
    seen = window(energy_j(replace(row, setting=at)), latency_ms, context={BY: row.at})
    return trial(number, at, seen, phase=Phase.CONFIRMING, context={BY: row.at})


def history() -> list[Trial]:
    """Return a baseline under a load of 4, and four windows for each row but the last at its load."""
    usual = window(14.0, 100.0, context={BY: 4.0})
    trials = [trial(n, setting(), usual, phase=Phase.BASELINE) for n in (1, 2)]
    for row in ROWS[:3]:
        assert row.at is not None
        for at in (setting(), row.setting) * 2:
            trials.append(at_load(len(trials) + 1, at, row, 25.0 * row.at))
    return trials


def limits_ms(held: Plan, trials: list[Trial], *constraints: str) -> list[list[float]]:
    at = replace(study(Phase.HOLDING, plan=held), constraints=tuple(
        Constraint.parse(c) for c in constraints or ("latency_p99_ms <= 1.2x baseline",)
    ))  # fmt: skip
    order = assignments.hold(at, trials, held)
    return [[limit.value for limit in limits] for limits in order.limits]


@pytest.mark.promise("a plan is good at one load only, or one of its rows drifts")
def test_a_row_is_held_to_the_limits_of_its_own_load() -> None:
    assert limits_ms(PLAN, history()) == [
        [pytest.approx(60.0)],
        [pytest.approx(120.0)],
        [pytest.approx(240.0)],
        [],
    ]


def test_a_row_of_whose_load_nothing_is_known_is_held_to_the_studys_limits() -> None:
    assert limits_ms(PLAN, history()[:2]) == [[pytest.approx(120.0)]] * 3 + [[]]
    assert limits_ms(Plan.single(setting(600)), history()) == [[pytest.approx(120.0)]]
    assert limits_ms(Plan.single(setting()), history()) == [[]]


def test_an_absolute_limit_is_every_rows() -> None:
    assert limits_ms(PLAN, history(), "latency_p99_ms <= 500") == [[500.0]] * 3 + [[]]


def test_a_row_that_breaks_the_limit_of_its_load_is_reported() -> None:
    slow = [*history(), *(at_load(n, setting(600), ROWS[0], 90.0) for n in (15, 16, 17, 18))]
    at = study(Phase.HOLDING, plan=PLAN)
    assert unmet(past(at, history())) is None
    limit = unmet(past(at, slow))
    assert isinstance(limit, Limit) and limit.value == pytest.approx(60.0)


def holding() -> World:
    """Return a world whose study holds the plan, with the windows that confirmed it."""
    world = World()
    world.loop.register(device())
    signals = (Signal(BY, askable=True),)
    fresh = study(Phase.BASELINE, signals=signals)
    world.store.studies.add(fresh, "test", "created")
    for one in history():
        assert one.measurement is not None
        begun = world.store.trials.begin(
            "s1", one.setting, one.phase, "", world.time.now(), one.context
        )
        world.store.trials.end(
            "s1", begun.number, replace(completed(), measurement=one.measurement), world.time.now()
        )
    world.store.studies.revise(fresh.moved(Phase.HOLDING, PLAN), "test", "held", world.time.now())
    return world


def observe(world: World, row: Row, factor: float, context: dict[str, float] | None = None) -> None:
    """Report ten windows of a row, at its load or another, a minute apart."""
    assert row.at is not None
    world.time.sleep(3600)
    for number in range(10):
        now = world.time.now() + timedelta(minutes=number)
        seen = window(factor * energy_j(row), context=context or {BY: row.at})
        seen = replace(seen, started_at=now)
        world.store.observations.add_all(
            [Observation(study="s1", device="sim", setting=row.setting, measurement=seen, at=now)]
        )


@pytest.mark.promise("a plan is good at one load only, or one of its rows drifts")
@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_row_can_drift_and_is_named(number: int) -> None:
    world, row = holding(), ROWS[number]
    for other in ROWS:
        observe(world, other, 1.25 if other is row else 1.0)
    list(Maintenance(world.loop, keep_days=30).watch_drift())
    assert world.store.studies.get("s1").phase is Phase.BASELINE
    clock = row.setting["gpu.clock_mhz"]
    why = world.store.studies.latest("s1").why
    assert why == (
        f"energy_j has drifted from {energy_j(row):.4g} to {1.25 * energy_j(row):.4g} "
        f"while gpu.clock_mhz={clock} batch_size=1 was held"
    )


def test_rows_that_show_what_they_showed_at_their_load_have_not_drifted() -> None:
    """The same setting takes 8 J at a load of 2 and 14 J at 8: each load has its own comparison."""
    world = holding()
    for row in ROWS:
        observe(world, row, 1.0)
    list(Maintenance(world.loop, keep_days=30).watch_drift())
    assert world.store.studies.get("s1").phase is Phase.HOLDING


@pytest.mark.parametrize("context", [{BY: 5.5}, {"arrival_rate_per_s": 50.0}])
def test_a_window_of_another_load_or_of_none_that_is_known_is_no_drift(
    context: dict[str, float],
) -> None:
    world = holding()
    observe(world, ROWS[1], 1.25, context)
    list(Maintenance(world.loop, keep_days=30).watch_drift())
    assert world.store.studies.get("s1").phase is Phase.HOLDING


def test_a_setting_that_is_good_at_its_rows_load_is_not_let_go_for_another() -> None:
    tuning = replace(
        study(Phase.TUNING), constraints=(Constraint.parse("latency_p99_ms <= 1.2x baseline"),)
    )
    usual = history()
    too_slow = trial(99, setting(600), window(10.0, 150.0, context={BY: 4.0}))
    assert not assignments.outgrown(tuning, [*usual, too_slow], setting(600))
    assert assignments.outgrown(tuning, [*usual[:2], too_slow], setting(600))
