"""The last lines of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.cli.run.test_results import result
from tuner.cli.run.results import Result
from tuner.cli.run.summary import summary, write_page
from tuner.core import StoreError

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_five_lines_give_saving_limits_cost_report_and_next_step() -> None:
    lines = dict(summary([result()], Path("report.html"), ""))
    assert list(lines) == ["saved", "limits", "cost", "report", "next"]
    assert lines["saved"].startswith("40.0") and "energy_j on sim" in lines["saved"]
    assert (
        lines["limits"] == "all met by the best settings; 0 of 4 windows broke one while exploring"
    )
    assert lines["report"] == "report.html"


def test_a_broken_window_is_counted_and_a_study_without_a_winner_saves_nothing() -> None:
    lines = dict(summary([result(worlds.flat), result(worlds.steep)], None, " --db sqlite:///x"))
    assert lines["saved"].startswith("nothing on sim; ")
    assert "1 of 8 windows broke one" in lines["limits"]
    assert (
        lines["report"] == "`jouletune report --db sqlite:///x --format html --output report.html`"
    )


def test_after_a_run_of_ones_own_service_the_next_step_is_to_hold_the_result() -> None:
    def ends(found: Result) -> str:
        job = found.job.model_copy(update={"workload": "http://127.0.0.1:8000"})
        return dict(summary([replace(found, job=job)], None, ""))["next"]

    assert "doctor" in dict(summary([result()], None, ""))["next"]
    assert "--keep" in ends(result()) and "more knobs" in ends(result(worlds.flat))
    assert "the reason" in ends(replace(result(), main=replace(result().main, trials=())))


def test_holds_of_services_are_watched_at_their_tuner() -> None:
    url = "http://127.0.0.1:8080"
    assert dict(summary([result()], None, "", url))["next"] == f"`jouletune status --tuner {url}`"


def test_limits_of_a_run_that_tuned_nothing_are_not_reported_as_met() -> None:
    found = result()
    untuned = replace(found, main=replace(found.main, trials=()))
    assert dict(summary([untuned], None, ""))["limits"] == "not compared: nothing was tuned"


def test_a_run_that_finished_no_study_has_no_summary() -> None:
    assert list(summary([], None, "")) == []


def test_the_page_holds_every_study_of_the_run(tmp_path: Path) -> None:
    studies = [result(), result(worlds.flat)]
    page = write_page(studies, tmp_path, AT).read_text("utf-8")
    assert all(f"Study {one.main.report.study.id}" in page for one in studies)
    with raised(StoreError, "none"):
        write_page(studies, tmp_path / "none", AT)
