"""The loop's notes on its own work: each one once, after the work is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.builders import applied, window
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Applied, Device, Level, Limit, Measurement, Outcome, Study
from tuner.study.telemetry import Telemetry
from tuner.wire import HoldOrder, HoldReport, TrialReport


class Heard(Telemetry):
    """Records the notes."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.windows: list[Measurement] = []
        self.limits: list[tuple[Limit, ...]] = []
        self.outcomes: list[Outcome] = []
        self.levels: list[Level] = []
        self.policies: list[str] = []

    def noted(self, kind: str) -> None:
        self.kinds.append(kind)

    def measured(self, of: Study | Device, device: str, window: Measurement) -> None:
        self.windows.append(window)

    def held(self, study: Study, device: str, window: Measurement, limits: Sequence[Limit]) -> None:
        self.limits.append(tuple(limits))

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def applied(self, applied: Applied) -> None:
        self.levels.append(applied.level)

    def suggested(self, policy: str, seconds: float) -> None:
        self.policies.append(policy)


@pytest.fixture
def world() -> World:
    made = World(telemetry=Heard())
    made.start()
    return made


def heard(world: World) -> Heard:
    telemetry = world.telemetry
    assert isinstance(telemetry, Heard)
    return telemetry


def report(order: HoldOrder, world: World, minute: int) -> HoldReport:
    began = world.time.now() + timedelta(minutes=minute)
    return HoldReport(
        device="sim",
        study=order.study,
        revision=order.revision,
        setting=order.plan.rows[-1].setting,
        measurement=replace(window(), started_at=began),
    )


def test_every_trial_is_heard_once_with_its_window(world: World) -> None:
    world.run(truth)
    trials = world.store.trials.list("s1")
    recorded = heard(world)
    assert len(recorded.outcomes) == len(recorded.windows) == len(trials)
    assert set(recorded.policies) == {"scripted"}
    assert "holding" in recorded.kinds


def test_a_report_that_comes_twice_is_heard_once(world: World) -> None:
    order = world.assigned()
    message = TrialReport(
        device="sim",
        study=order.study,
        trial=order.trial,
        attempt=order.attempt,
        token=order.token,
        nonce=order.nonce,
        outcome=truth(order.setting),
    )
    assert [world.loop.trial_reports.record(message).result for _ in range(2)] == [
        "closed",
        "duplicate",
    ]
    assert len(heard(world).windows) == 1


def test_a_window_of_a_hold_is_heard_once_with_the_limits_it_is_held_by(world: World) -> None:
    order = world.run(truth)
    before = len(heard(world).windows)
    for minute in (1, 1, 2):
        world.loop.hold_reports.observe(report(order, world, minute))
    assert len(heard(world).windows) == before + 2
    assert heard(world).limits == [order.limits[-1]] * 2


def test_a_window_of_a_hold_that_this_process_never_ordered_has_no_limits(world: World) -> None:
    order = world.run(truth)
    world.telemetry = Heard()
    world.loop = world.restarted()
    world.loop.hold_reports.observe(report(order, world, 1))
    assert heard(world).limits == [()]


def test_a_setting_is_heard_of_when_it_changes(world: World) -> None:
    world.ask()
    world.ask()
    assert heard(world).levels == [applied().level]
