"""Savings of other devices beside an observation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.tuner.cli import worlds
from tests.unit.tuner.cli.run.test_observed import Bench
from tuner.cli.place import ApiAddress
from tuner.cli.run.forecasts import forecasts
from tuner.cli.run.observe import lines, with_forecasts
from tuner.cli.run.observed import observation
from tuner.wire import Change


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
