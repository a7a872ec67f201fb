"""A policy that plans by its own signal: the number of widgets that wait to be painted.

Neither the vocabulary nor the agent has widgets: the workload offers the signal, the policy names it,
and the agent follows it, also without the tuner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.target.side import Side, SignalSample
from agents.target.target import Target
from tests.builders import Time
from tests.extend.lab import DEVICE, Lab, lab
from tests.fakes import FakeActuator, FakeMeter, steady
from tuner.core import Done, Knob, Metric, Part, Past, Plan, Row, Signal, Space, Suggestion, Try
from tuner.wire import StudyDraft

BRUSHES = Knob("brushes", (1, 2, 4), 4, Part.WORKLOAD)
WAITING = Signal("widgets_waiting")


class Widgets:
    """The signal, which may be read at any moment."""

    signal = WAITING

    def __init__(self) -> None:
        self.waiting = 0.0

    def read(self) -> SignalSample:
        return SignalSample(self.waiting)


class ByWidgets:
    """Uses fewer brushes while few widgets wait; tries two brushes first."""

    def suggest(self, past: Past) -> Suggestion:
        few = {"brushes": 2}
        if past.evidence.of(few) is None:
            return Try(few, "how long do two brushes take?")
        rows = (Row(10.0, few), Row(math.inf, past.study.baseline))
        return Done(Plan(rows, WAITING.name), "two brushes are enough for ten widgets")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Lab, Widgets, FakeActuator]]:
    time, widgets = Time(), Widgets()
    brushes = FakeActuator("workload", Space((BRUSHES,)), [])
    steadily = steady(watts=50.0)
    side = Side(
        name="paint shop",
        kind="shop",
        board="",
        version="1",
        space=Space((BRUSHES,)),
        metrics=tuple(Metric(name) for name in ("energy_j", "latency_p99_ms")),
        actuator=brushes,
        meter=FakeMeter(
            time,
            lambda began, now: {
                **steadily(began, now),
                "energy_j": 10.0 * float(brushes.now["brushes"]) * (now - began),
            },
        ),
        signals=(widgets,),
    )
    with lab(tmp_path, Target((), side), time, lambda _: ByWidgets()) as opened:
        opened.tune(StudyDraft(devices=(DEVICE,), constraints=()))
        yield opened, widgets, brushes


def test_the_plan_is_followed_as_the_signal_moves(
    shop: tuple[Lab, Widgets, FakeActuator],
) -> None:
    opened, widgets, brushes = shop
    for waiting, expected in [(3.0, 2), (25.0, 4), (5.0, 2)]:
        widgets.waiting = waiting
        opened.follow(30)
        assert brushes.now["brushes"] == expected, waiting


def test_the_signal_is_followed_while_the_tuner_is_away(
    shop: tuple[Lab, Widgets, FakeActuator],
) -> None:
    opened, widgets, brushes = shop
    opened.away = True
    widgets.waiting = 3.0
    opened.follow(30)
    opened.agent.step()
    assert brushes.now["brushes"] == 2


def test_the_plan_is_shown_by_its_signal(shop: tuple[Lab, Widgets, FakeActuator]) -> None:
    opened, _, _ = shop
    plan = opened.verbs.studies()[0].plan
    assert plan is not None and plan.by == "widgets_waiting" and len(plan.rows) == 2
