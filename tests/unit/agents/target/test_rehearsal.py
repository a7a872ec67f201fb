"""One rehearsal of a workload reports each success and each failure with its reason, and restores all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.host.symptoms import Symptom
from agents.target.rehearsal import rehearse
from agents.target.side import Side
from tests.fakes import Rig
from tuner.core import (
    FAILURES,
    ActuationError,
    Estimate,
    MeasurementError,
    Metric,
    Reading,
    Scope,
    Setting,
)


class Deaf:
    """Accepts every setting, and applies none."""

    def __init__(self, inner: Side) -> None:
        self._now = inner.actuator.read()

    def read(self) -> Setting:
        return self._now

    def apply(self, setting: Setting) -> None:
        return


class Stuck(Deaf):
    """Refuses every value other than the present one."""

    def __init__(self, inner: Side) -> None:
        super().__init__(inner)
        self.asked: list[Setting] = []

    def apply(self, setting: Setting) -> None:
        self.asked.append(setting)
        if setting != self._now:
            raise ActuationError("the service answers 500", hint="see its log")


def refusing() -> object:
    raise MeasurementError("the service tells no histogram")


@pytest.fixture
def side(tmp_path: Path) -> Side:
    rig = Rig(tmp_path)
    workload = rig.target.workload
    assert workload is not None
    return workload


def told(side: Side) -> dict[str, Symptom]:
    return {s.about: s for s in rehearse(side, HostClock(), 0.05)}


def test_working_knobs_are_reported_and_restored(side: Side) -> None:
    before = side.actuator.read()
    symptoms = told(replace(side, cannot={"energy_j": "no meter"}))
    assert side.actuator.read() == before
    assert symptoms["batch_size"].well and "and back" in symptoms["batch_size"].seen
    assert (symptoms["energy_j"].well, symptoms["energy_j"].seen) == (False, "no meter")


@pytest.mark.parametrize(
    ("actuator", "says"),
    [(Deaf, "was read back"), (Stuck, "the service answers 500")],
)
def test_an_unset_knob_is_listed_with_its_reason(
    side: Side, actuator: Callable[[Side], Deaf], says: str
) -> None:
    standing = actuator(side)
    symptoms = told(replace(side, actuator=standing))
    assert not symptoms["batch_size"].well
    assert says in symptoms["batch_size"].seen
    if isinstance(standing, Stuck):
        assert symptoms["batch_size"].cure == "see its log"
        assert standing.asked[-1] == side.actuator.read()


def test_a_silent_meter_is_reported(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side.meter, "start", refusing)
    assert told(side)["the meter"].seen == "the service tells no histogram"


class Refused:
    """A window in which the service refused every request of our load."""

    def read(self) -> Reading:
        return Reading({"items": 0.0, "failed": 9.0}, notes={FAILURES: "9 × HTTP 405"})

    stop = read


def test_refused_requests_are_reported_with_their_reason(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side.meter, "start", Refused)
    symptom = told(side)["the meter"]
    assert "9 failures (9 × HTTP 405)" in symptom.seen and "[load]" in symptom.cure


class Shown:
    """A window with one number, which depends on the knob's value."""

    def __init__(self, value: float) -> None:
        self._value = value

    def read(self) -> Reading:
        estimate = Estimate.of_mean(self._value, 0.1, 9, scope=Scope.SERVICE)
        return Reading({"items": 9.0}, {"latency_mean_ms": estimate})

    stop = read


class ShowsTheKnob:
    """A meter of a service whose knob has an effect, or none."""

    def __init__(self, side: Side, *, heeds: bool) -> None:
        self._side, self._heeds = side, heeds

    def start(self) -> Shown:
        value = self._side.actuator.read()["batch_size"]
        assert isinstance(value, int)
        return Shown(10.0 * value if self._heeds else 10.0)


class Slow(Shown):
    """A window that has a mean only after seven reads, as one of a slow service."""

    reads = 0

    def read(self) -> Reading:
        self.reads += 1
        reading = super().read()
        return reading if self.reads > 7 else replace(reading, estimates={})

    stop = read


@pytest.mark.parametrize("kept", [True, False])
def test_a_window_is_longer_while_a_metric_needs_more_requests(side: Side, kept: bool) -> None:
    class Meter(ShowsTheKnob):
        def start(self) -> Shown:
            return Slow(10.0)

    names = ("latency_mean_ms",) if kept else ("latency_mean_ms", "arrival_rate_per_s")
    metrics = tuple(Metric(name, scope=Scope.SERVICE) for name in names)
    symptoms = told(replace(side, meter=Meter(side, heeds=False), metrics=metrics))
    assert symptoms["latency_mean_ms"].well
    assert kept or not symptoms["arrival_rate_per_s"].well


@pytest.mark.parametrize("heeds", [True, False])
def test_a_knob_that_cannot_be_read_back_is_tried_by_its_effect(side: Side, heeds: bool) -> None:
    before = side.actuator.read()
    unproven = {"batch_size": "the service does not report it"}
    metrics = (Metric("latency_mean_ms", scope=Scope.SERVICE),)
    meter = ShowsTheKnob(side, heeds=heeds)
    symptoms = told(replace(side, unproven=unproven, meter=meter, metrics=metrics))
    effect = symptoms["effect of batch_size"]
    assert effect.well is heeds
    assert ("latency_mean_ms" in effect.seen) is heeds
    assert "the service does not report it" in effect.seen
    assert side.actuator.read() == before


def test_an_effect_that_cannot_be_measured_is_reported_with_the_reason(side: Side) -> None:
    first = side.actuator.read()

    class Ending(ShowsTheKnob):
        def start(self) -> Shown:
            if side.actuator.read() != first:
                raise MeasurementError("it does not answer")
            return super().start()

    meter = Ending(side, heeds=True)
    symptoms = told(replace(side, unproven={"batch_size": "untold"}, meter=meter))
    assert symptoms["effect of batch_size"].seen == "it does not answer"
    assert side.actuator.read() == first
