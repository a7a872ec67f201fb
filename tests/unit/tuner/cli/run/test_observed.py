"""The windows of `observe`, and each metric pooled over them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from agents.target.measured import MeasuredTarget
from agents.target.observe import MeasuredWindow, Observer
from agents.target.side import MeasuredSide
from tests.fakes import Rig, steady
from tests.unit.tuner.cli import worlds
from tuner.cli.answers import Rows
from tuner.cli.app import main
from tuner.cli.asking import ApiAddress
from tuner.cli.output import plain
from tuner.cli.run.observe import lines, with_forecasts
from tuner.cli.run.observed import RefusedWindow, forecasts, observation, observed
from tuner.core import (
    ActuationError,
    Busy,
    Conflict,
    DeviceLost,
    Estimate,
    MeasurementError,
    RuleFinding,
    RuleResult,
    TuningError,
)
from tuner.wire import Change

Outcomes = list[MeasuredWindow | RefusedWindow]


class Bench:
    """A fake target that is observed on its own time."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig(folder)
        self.target = self.rig.target.measured

    @property
    def observer(self) -> Observer:
        bench = self.rig.bench
        return Observer(
            target=self.target,
            host_clock=self.rig.time,
            now=self.rig.time.now,
            usage=bench.usage,
            foreign_share=1.0,
        )

    def windows(self, count: int = 3, for_s: float = 0.0, stop_s: float = 1e9) -> Outcomes:
        time = self.rig.time
        began = time.monotonic()
        seen: Outcomes = []

        def check() -> None:
            if time.monotonic() - began > stop_s:
                raise Conflict("ended")

        with contextlib.suppress(Conflict):
            seen.extend(observed(self.observer, 10.0, count, began + for_s, check))
        return seen


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_type_has_no_actuator(bench: Bench) -> None:
    names = {field.name for field in fields(MeasuredSide)}
    assert not names & {"actuator", "space", "settle_s"}
    assert not hasattr(MeasuredTarget, "apply")
    for side in bench.target.sides.values():
        assert type(side) is MeasuredSide and not hasattr(side, "actuator")


def test_three_windows_are_pooled_and_nothing_is_set(bench: Bench) -> None:
    seen = observation(bench.target, bench.windows())
    assert len(seen.windows) == 3 and not seen.refused
    assert seen.metrics["energy_j"].value == pytest.approx(2.0, rel=0.01)
    assert seen.metrics["energy_j"].n == sum(w.metrics["energy_j"].n for w in seen.windows)
    assert seen.windows[0].joules == pytest.approx(100.0 * seen.windows[0].seconds, rel=0.01)
    assert bench.rig.log == []
    assert bench.rig.meter.open == bench.rig.work_meter.open == 0


@pytest.mark.parametrize("high", [math.inf, 90.0])
def test_a_tail_of_too_few_requests_has_no_error_but_the_reason(bench: Bench, high: float) -> None:
    tail = Estimate(80.0, 3.0, 94, 70.0, high)
    shows = bench.rig.shows
    bench.rig.shows = lambda began, now: {**shows(began, now), "latency_p99_ms": tail}
    shown = lines(observation(bench.target, bench.windows()))
    table = next(one for one in shown if isinstance(one, Rows))
    value = next(row[1] for row in table.rows if row[0] == "latency_p99_ms")
    reasons = [one for one in shown if isinstance(one, str) and one.startswith("no bound")]
    assert ("±" in value) is bool(high == 90.0) is (reasons == [])
    assert reasons == [] or "94 requests in 10 s are too few to bound latency_p99_ms" in reasons[0]


def test_a_time_is_filled_with_windows_and_has_at_least_one(bench: Bench) -> None:
    assert len(bench.windows(0, for_s=2.0)) == 1
    began = bench.rig.time.monotonic()
    seen = bench.windows(0, for_s=60.0)
    assert 4 <= len(seen) <= 6
    assert bench.rig.time.monotonic() - began <= 61.0


def test_the_windows_before_an_interrupt_count(bench: Bench) -> None:
    assert len(bench.windows(0, for_s=600.0, stop_s=25.0)) == 2
    assert bench.rig.meter.open == 0


def test_an_interrupt_before_the_first_window_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> Outcomes:
        os.kill(os.getpid(), signal.SIGINT)
        raise Conflict("ended by a signal")

    monkeypatch.setattr("tuner.cli.run.observe.observed", interrupted)
    assert main(["observe", "--device", "simulated:a100", "--json"]) == 130
    assert json.loads(capsys.readouterr().err)["code"] == "interrupted"


def test_a_contradicted_window_is_refused_with_its_reason(bench: Bench) -> None:
    usual, began_s = bench.rig.shows, bench.rig.time.monotonic()

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        if now - began_s < 5.0:
            raise MeasurementError("two witnesses differ")
        return usual(began, now)

    bench.rig.shows = shows
    seen = observation(bench.target, bench.windows())
    assert {one.why for one in seen.refused} == {"two witnesses differ"}
    assert len(seen.windows) + len(seen.refused) == 3 and seen.windows
    assert any("two witnesses differ" in str(one) for one in lines(seen))


@pytest.mark.parametrize("error", [MeasurementError, ActuationError, DeviceLost, Busy])
def test_a_meter_that_fails_costs_no_window_before_it(
    bench: Bench, error: type[TuningError]
) -> None:
    usual, began_s = bench.rig.shows, bench.rig.time.monotonic()

    def shows(began: float, now: float) -> Mapping[str, float | Estimate]:
        if now - began_s > 25.0:
            raise error("it fell off the bus")
        return usual(began, now)

    bench.rig.shows = shows
    seen = observation(bench.target, bench.windows(0, for_s=100.0))
    assert len(seen.windows) == 2
    assert 5 <= len(seen.refused) <= 9  # at the pace of whole windows
    assert {one.why for one in seen.refused} == {"it fell off the bus"}
    assert bench.rig.meter.open == 0


def test_rules_are_listed_with_the_figures_that_they_judge(bench: Bench) -> None:
    findings = (
        RuleFinding(rule="lengths"),
        RuleFinding(RuleResult.UNKNOWN, "no energy counter", rule="counter_beside_power"),
        RuleFinding(rule="own_requests"),
    )
    windows: Outcomes = [
        replace(one, findings=findings)
        for one in bench.windows()
        if isinstance(one, MeasuredWindow)
    ]
    metrics = observation(bench.target, windows).metrics
    assert metrics["energy_j"].judged_by == ("lengths",)
    assert metrics["energy_j"].not_judged_by == {"counter_beside_power": "no energy counter"}
    assert metrics["latency_p99_ms"].judged_by == ("lengths", "own_requests")
    assert metrics["latency_p99_ms"].not_judged_by == {}


def test_each_unmeasured_metric_has_its_reason(bench: Bench) -> None:
    bench.rig.shows = steady(per_s=0.0)
    seen = observation(bench.target, bench.windows())
    assert seen.unavailable["cpu_time_ms"] == "not measured: no item was completed"
    assert any("unavailable" in one for one in lines(seen) if isinstance(one, str))


def test_the_document_fits_its_schema(bench: Bench) -> None:
    rs = pytest.importorskip("jsonschema_rs")
    schema = json.loads((Path(__file__).parents[5] / "docs/api/observe.schema.json").read_text())
    document = plain(observation(bench.target, bench.windows()))
    validator = rs.validator_for(schema)
    validator.validate(document)
    assert isinstance(document, dict)
    document["metrics"] = 3
    assert not validator.is_valid(document)


def test_a_study_of_the_same_board_and_workload_is_a_forecast(tmp_path: Path) -> None:
    verbs, study = worlds.held()
    (found,) = forecasts(verbs, "A100", "inference")
    assert (found.study, found.devices, found.setting) == (study, ("sim",), worlds.BEST)
    assert found.saving.mean == pytest.approx(0.4, abs=0.02) and found.saving.stderr > 0.0
    assert f"study {study} on sim saved 40" in found.text
    assert found.text.endswith("it was not measured in this observation")
    bench = Bench(tmp_path)
    seen = replace(observation(bench.target, bench.windows()), forecasts=(found,))
    assert f"forecast  {found.text}" in list(lines(seen))


@pytest.mark.parametrize(("board", "workload"), [("H100", "inference"), ("A100", "other")])
def test_a_study_of_another_board_or_workload_is_no_forecast(board: str, workload: str) -> None:
    verbs, _ = worlds.held()
    assert list(forecasts(verbs, board, workload)) == []


def test_a_stopped_study_gives_no_forecast() -> None:
    verbs, study = worlds.held()
    verbs.stop(study, Change(who="ann", why="over"))
    assert list(forecasts(verbs, "A100", "inference")) == []


def test_a_tuner_that_does_not_answer_costs_no_figure(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 30)
    token.chmod(0o600)
    bench = Bench(tmp_path)
    seen = observation(bench.target, bench.windows())
    after = with_forecasts(seen, ApiAddress(tuner="http://127.0.0.1:9", token_file=token))
    assert after.metrics == seen.metrics and after.no_forecast
    assert any("forecast  none" in one for one in lines(after) if isinstance(one, str))


def test_no_time_to_observe_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["observe", "--device", "simulated:orin", "--for", "0s"]) == 2
    assert "--for cannot be '0s'; write 90s" in capsys.readouterr().err
