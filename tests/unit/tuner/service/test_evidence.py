from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import window
from tests.evidence import written
from tests.unit.tuner.study.worlds import World, truth
from tuner import verify
from tuner.core import Level, Outcome, TrialState
from tuner.service.operations import Operations
from tuner.wire import HoldReport

RELATIVE = ("latency_p99_ms <= 1.2x baseline", "throughput_per_s >= 0.9x baseline")


def checked(world: World, folder: Path) -> verify.Archive:
    return verify.Archive(str(written(Operations(world.loop), "s1", folder / "study.zip")))


def lacking(setting: Mapping[str, Level]) -> Outcome:
    own = window(10, 100)
    rest = {n: e for n, e in own.estimates.items() if n != "throughput_per_s"}
    return Outcome(state=TrialState.COMPLETED, measurement=replace(own, estimates=rest))


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(state=TrialState.FAILED, reason="x"),
        Outcome(state=TrialState.CONTAMINATED, reason="x", measurement=window(10, 100)),
        Outcome(state=TrialState.INCONCLUSIVE, reason="x", measurement=window(10, 100)),
        lacking({}),
    ],
)
def test_a_study_without_a_whole_baseline_contradicts_nothing(
    outcome: Outcome, tmp_path: Path
) -> None:
    world = World()
    world.start(constraints=RELATIVE)
    assert checked(world, tmp_path).wrong == []
    order = world.assigned()
    assert checked(world, tmp_path).wrong == []
    world.report(order, outcome)
    assert checked(world, tmp_path).wrong == []
    world.ask()
    assert checked(world, tmp_path).wrong == []


def test_windows_stored_meanwhile_are_in_neither_report_nor_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.start()
    order = world.run(truth)

    def hold(energy_j: float) -> None:
        world.ask_holding(order)
        began = world.time.now()
        world.time.sleep(60)
        own = replace(window(energy_j, 110), started_at=began)
        row = order.plan.rows[-1].setting
        report = HoldReport.of(order, device="sim", setting=row, measurement=own)
        assert world.loop.hold_reports.observe(report).result == "kept"

    hold(6.0)
    studies = type(world.loop.store.studies)
    own = studies.revisions

    def revised(*args: object) -> object:
        hold(5.5)
        return own(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(studies, "revisions", revised)
    assert checked(world, tmp_path).wrong == []
