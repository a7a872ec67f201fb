"""A report as a document: numbers as on the terminal, no loaded resources, and escaped names."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.builders import START, device
from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tuner.core import Bill, ConfigError, InvalidInput, PeriodSaving, Phase
from tuner.presentation.documents import (
    COLUMNS,
    ReportedStudy,
    html,
    markdown,
    overview,
    study_picture,
    summed,
    svg,
)
from tuner.presentation.standing import StudyOutcome
from tuner.service.operations import Operations
from tuner.wire import Change, StudyDraft

HOSTILE = '<img src=x onerror="alert(1)"></script>*_`|'


def reported(verbs: Operations, study: str) -> ReportedStudy:
    report, revisions, trials = verbs.report(study), verbs.revisions(study), verbs.trials(study)
    outcome = StudyOutcome.of(report, revisions, trials)
    return ReportedStudy(outcome=outcome, front=tuple(verbs.pareto(study)))


@pytest.fixture(scope="module")
def held() -> ReportedStudy:
    return reported(*worlds.held())


class Page(HTMLParser):
    """The content of a page: its elements with their text, and the resources that it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        attributes = dict(attrs)
        self.loaded += [str(attributes[n]) for n in ("src", "href") if n in attributes]


def test_a_page_has_its_pictures_runs_no_script_and_loads_nothing(held: ReportedStudy) -> None:
    pytest.importorskip("matplotlib")
    text = html([held, held], ["Study x cannot be read"], "What we saved", START)
    page = Page(text)
    assert [link for link in page.loaded if not link.startswith("#")] == []
    assert page.tags.count("section") == 2
    assert page.tags.count("svg") == 4 and "script" not in page.tags
    drawn = text.split("<svg")[1:]
    for name in ("feasible", "baseline", "best", "limit 120"):
        assert name in drawn[0]
    assert "best so far" in drawn[1]
    assert len(text) < 500_000
    assert "energy_j is 40.0 ± 0.6 % better" in text
    assert "<h1>What we saved</h1>" in text and "<p>Study x cannot be read</p>" in text
    assert "default-src 'none'" in text


def test_no_name_is_markup_in_a_page_or_in_markdown() -> None:
    pytest.importorskip("matplotlib")
    verbs, study = worlds.held(about=device(workload=HOSTILE, board=HOSTILE))
    study_report = reported(verbs, study)
    page = Page(html([study_report], [HOSTILE], HOSTILE, START))
    assert "img" not in page.tags
    text = markdown([study_report], [HOSTILE], HOSTILE, START, {})
    assert "<img" not in re.sub(r"\\<", "", text)
    assert r"\`\|" in text


def test_markdown_has_the_terminals_facts(held: ReportedStudy) -> None:
    text = markdown([held], [], "What we saved", START, {held.id: "a.svg"})
    assert text.startswith("# What we saved\n")
    assert "![Energy against latency of the trials](a.svg)" in text
    row = next(line for line in text.splitlines() if line.startswith("| energy_j |"))
    assert row == "| energy_j | 10.000 ± 0.071 J | 6.000 ± 0.042 J | -40.0 ± 0.6 % |"
    assert "- limit: latency_p99_ms \\<= 120.0 ms: kept" in text
    assert "- best: gpu.clock_mhz=600 batch_size=1" in text


def test_savings_of_several_studies_are_summed_with_their_error(held: ReportedStudy) -> None:
    def having(saved: float | None, stderr: float) -> ReportedStudy:
        whole = PeriodSaving("in all", START, 1, 60.0, saved, stderr, 70e3)
        bill = Bill(whole=whole, seconds=60.0, currency="EUR")
        report = held.outcome.report.model_copy(update={"bill": bill})
        return replace(held, outcome=replace(held.outcome, report=report))

    text = summed([having(3e3, 30.0), having(4e3, 40.0), having(None, 0.0)])
    assert text == (
        "3 studies with 24 trials in 3 min of windows so far; saved by holding: "
        "7.000 ± 0.050 kJ (0.00194 kWh, 5.0 % of the baseline) (by 2 of them; unknown for the others)"
    )
    assert summed([having(None, 0.0)]).endswith("no saving by holding measured yet")
    assert (
        summed([])
        == "0 studies with 0 trials in 0 s of windows so far; no saving by holding measured yet"
    )


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        ({"offline": ()}, "40.0 ± 0.6 %"),
        ({"offline": ("sim",)}, "–"),
        ({"offline": (), "stopped": True}, "–"),
        ({"offline": (), "unable": "sim: another program sets it"}, "–"),
        ({"offline": (), "phase": Phase.PAUSED}, "–"),
        ({"offline": (), "phase": Phase.STOPPED}, "–"),
    ],
)
def test_the_overview_shows_a_saving_only_while_it_is_applied(
    held: ReportedStudy, now: dict[str, Any], shown: str
) -> None:
    report = held.outcome.report
    seen = report.model_copy(update={"study": report.study.model_copy(update=now)})
    (row,) = overview([replace(held, outcome=replace(held.outcome, report=seen))])
    assert row[COLUMNS.index(">saving")] == shown


def picture(verbs: Operations, study: str) -> str:
    return svg(study_picture(verbs.report(study), verbs.trials(study), verbs.pareto(study)))


@pytest.fixture(autouse=True)
def drawing() -> None:
    pytest.importorskip("matplotlib")


def test_the_limit_and_every_kind_of_window_are_in_the_legend() -> None:
    text = picture(*worlds.held(worlds.steep))
    for part in ("limit 120", "censored", "feasible (", "baseline", "best", "energy_j (J)"):
        assert part in text
    assert "study " in text


def test_the_same_study_gives_the_same_picture() -> None:
    verbs, study = worlds.held()
    assert picture(verbs, study) == picture(verbs, study)


def test_an_objective_with_nothing_beside_it_is_drawn_by_trial() -> None:
    verbs, study = worlds.held()
    report, trials = verbs.report(study), verbs.trials(study)
    alone = [t.model_copy(update={"metrics": {"energy_j": t.metrics["energy_j"]}}) for t in trials]
    text = svg(study_picture(report, alone, ()))
    assert "best so far" in text and "trial" in text


def test_before_anything_is_measured_there_is_nothing_to_draw() -> None:
    verbs = worlds.operations()
    study = verbs.create(StudyDraft(devices=("sim",), constraints=(), policy="scripted")).id
    verbs.stop(study, Change())
    with raised(InvalidInput, "measured"):
        picture(verbs, study)


def test_without_matplotlib_the_package_to_install_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with raised(ConfigError, "matplotlib") as refused:
        picture(*worlds.held())
    assert "jouletune[client]" in refused.value.hint
