"""A running proxy in front of a fake llama-server is profiled, and left in its first state."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.config import Attachment
from agents.main import open_target
from agents.target.target import Target
from tests.errors import raised
from tests.llama.running import RunningProxy, proxy_for
from tests.unit.agents.workloads.engine.conftest import models, stand_in
from tuner.core import ActuationError, InvalidInput, MeasurementError, Phase, Plan, Row
from tuner.profiling.decoding import ServerBench
from tuner.profiling.speculation import (
    LENGTH,
    RATE,
    SIGNAL,
    as_csv,
)

CROWD = ("--step-ms", "4", "--crowd-ms", "0.3", "--rate", "0.8", "-np", "4")
"""With one request drafting is 1.5 times as fast."""
QUIET, ANY_SHARE = 0.3, 1.0


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    folder = tmp_path_factory.mktemp("proxy")
    target, draft = models(folder)
    with proxy_for(stand_in("0.3.16", target, *CROWD), {"d": draft}, folder) as running:
        yield running


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps([f"prompt {i}" for i in range(64)]))
    return file


def opened(spec: str, folder: Path) -> Target:
    return open_target(Attachment("cpu", spec), "profile", 0, folder, Path("/"))


@pytest.mark.slow
def test_few_windows_give_a_table_and_the_former_setting_is_restored(
    proxy: RunningProxy, prompts: Path, tmp_path: Path
) -> None:
    rows = (Row(2.5, {LENGTH: 5}), Row(math.inf, {LENGTH: 1}))
    before = Plan(rows, by=SIGNAL)
    target = opened(f"llama_cpp:{proxy.url}#prompts:{prompts},tokens:32", tmp_path)
    target.runs.actuator.follow(before)  # type: ignore[attr-defined]
    lines: list[str] = []
    done, trials = ServerBench(target, "", QUIET, ANY_SHARE).profile(lines.append)
    assert target.runs.actuator.followed() == before  # type: ignore[attr-defined]
    target.close()
    first = done.plan.rows[0].setting[LENGTH]
    assert isinstance(first, int) and first >= 2, done
    tuning = [t for t in trials if t.phase is Phase.TUNING]
    assert len(lines) == len(trials) and len(tuning) <= 54 // 3
    plain = {t.ran_at[SIGNAL] for t in trials if t.setting[LENGTH] == 0}
    assert plain >= {1.0, 2.0, 4.0}
    file = tmp_path / "profile.csv"
    file.write_text(as_csv(trials))
    rows_written = list(csv.DictReader(file.read_text().splitlines()))
    assert {RATE, "cpu_time_ms", "accepted_per_step"} <= set(rows_written[0])
    assert len(rows_written) == len(trials)


def test_without_texts_nothing_is_sent_and_the_hint_shows_how_to_give_them(
    proxy: RunningProxy, tmp_path: Path
) -> None:
    target = opened(f"llama_cpp:{proxy.url}", tmp_path)
    with raised(InvalidInput, "#prompts:FILE.json"):
        ServerBench(target, "", QUIET, ANY_SHARE)
    target.close()


def test_a_draft_that_is_not_offered_is_named(
    proxy: RunningProxy, prompts: Path, tmp_path: Path
) -> None:
    target = opened(f"llama_cpp:{proxy.url}#prompts:{prompts}", tmp_path)
    with raised(InvalidInput, "wide"):
        ServerBench(target, "wide", QUIET, ANY_SHARE)
    target.close()


def test_an_engine_without_a_draft_length_is_refused(tmp_path: Path) -> None:
    target = open_target(Attachment("simulated:orin", ""), "profile", 0, tmp_path, Path("/"))
    with raised(InvalidInput, "jouletune workload proxy"):
        ServerBench(target, "", QUIET, ANY_SHARE)
    target.close()


def test_a_server_that_does_not_answer_any_more_gives_no_plan(
    prompts: Path, tmp_path: Path
) -> None:
    model, draft = models(tmp_path)
    with proxy_for(stand_in("0.3.16", model, *CROWD), {"d": draft}, tmp_path) as running:
        target = opened(f"llama_cpp:{running.url}#prompts:{prompts}", tmp_path)
        bench = ServerBench(target, "", QUIET, ANY_SHARE)
    with pytest.raises((MeasurementError, ActuationError)):
        bench.profile(lambda what: None)
    target.close()
