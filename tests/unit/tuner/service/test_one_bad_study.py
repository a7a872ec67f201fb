"""One study of impossible numbers in the database: every list, page, report and scrape still answers.

The numbers are written directly, as an older release accepted them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from db import Store, open_store
from db.history import HistoryQuestion, history, recent
from tests.builders import START, completed, device, setting, window
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.service.http.test_metrics import Scraped
from tests.unit.tuner.study.worlds import World
from tests.unit.tuner.web.site import Site
from tuner.cli.app import main
from tuner.core import Constraint, Estimate, Load, Outcome, Phase, Setting, Study, TrialState
from tuner.service import views
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries

HUGE: Mapping[str, Estimate] = {"energy_j": Estimate.of_mean(9e99, 9e99)}
TINY: Mapping[str, Estimate] = {
    "energy_j": Estimate.of_mean(1e-300, 1e-310),
    "power_w": Estimate.of_mean(1e-300, 1e-200),
}
NOTHING: Mapping[str, Estimate] = {"energy_j": Estimate.of_mean(0.0, 0.0)}
BAD_WINDOWS = {
    "overhead": replace(window(), overhead_s=1e308),
    "seconds": replace(window(), seconds=1e308),
    "huge": window(extra=HUGE),
    "tiny": window(extra=TINY),
    "nothing": window(extra=NOTHING),
    "items": replace(window(), load=Load(completed=10**18)),
}


def poison(store: Store, bad: str) -> Study:
    """Add a separate study whose windows all claim the same impossible number."""
    store.devices.put(device("bad-device"))
    like = store.studies.list()[0]
    bound = Constraint("latency_p99_ms", "<=", 1e308, relative=True)
    made = replace(
        like, id="badc0ffe", devices=("bad-device",), constraints=(bound,), phase=Phase.BASELINE,
        plan=None, created_at=START,
    )  # fmt: skip
    store.studies.add(made, "test", "created")
    outcome = Outcome(state=TrialState.COMPLETED, measurement=BAD_WINDOWS[bad])
    for at in (setting(), setting(), setting(600), setting(600)):
        trial = store.trials.begin(made.id, at, Phase.TUNING, "", START)
        store.trials.end(made.id, trial.number, outcome, START)
    return made


@pytest.fixture(params=list(BAD_WINDOWS))
def bad(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_list_has_all_studies(bad: str) -> None:
    verbs, good = worlds.held()
    poison(verbs.loop.store, bad)
    assert [v.id for v in verbs.studies()].count(good) == 1
    assert {v.id for v in verbs.studies()} == {good, "badc0ffe"}
    assert verbs.report(good).saving is not None
    assert len(verbs.devices()) == 2
    question = HistoryQuestion()
    assert {r.study for r in history(verbs.loop.store, question)} == {good, "badc0ffe"}
    assert {r.study for r in recent(verbs.loop.store, question, 50)} == {good, "badc0ffe"}


def test_every_page_and_scrape_answers(bad: str) -> None:
    verbs, good = worlds.held()
    poison(verbs.loop.store, bad)
    site = Site(verbs)
    with site.signed_in() as browser:
        site.fleet.summaries.renew()
        pages = ("/", "/studies", "/history", f"/studies/{good}", "/studies/badc0ffe", "/events")
        for page in pages:
            assert browser.get(page).status_code == 200, page
        assert good in browser.get("/studies").text
        assert "badc0ffe" in browser.get("/studies").text
        site.fleet.summaries.renew()
        assert good in browser.get("/studies").text


def test_a_scrape_counts_the_others(bad: str) -> None:
    scraped = Scraped()
    scraped.world.start()
    scraped.world.run(lambda at: worlds.slope(at))
    poison(scraped.world.store, bad)
    assert scraped.value("studies_pending") == 2.0
    scraped.summaries.renew()
    assert scraped.value("studies_pending") == 0.0
    assert scraped.value("study_saving_ratio", study="s1") == pytest.approx(0.4)


def test_a_report_of_all_has_the_others(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = worlds.database(tmp_path)
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{tmp_path / worlds.FILE}")
    store = open_store(f"sqlite:///{tmp_path / worlds.FILE}")
    poison(store, bad)
    store.close()
    for command in (["report", "--since", "2025-01-01"], ["study", "list"], ["history"]):
        assert main(command) == 0, command
        out = capsys.readouterr().out
        assert good in out and "badc0ffe" in out


@pytest.mark.parametrize("error", [OverflowError("too large"), ZeroDivisionError(), KeyError("x")])
def test_a_failed_row_shows_the_reason_in_its_place(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes an error of an unexpected kind."""
    verbs, good = worlds.held()
    poison(verbs.loop.store, "huge")
    view, look = views.study_view, Operations.look

    def failing(study: Study, *rest: Any) -> Any:  # noqa: ANN401
        if study.id == "badc0ffe":
            raise error
        return view(study, *rest)

    def unlucky(self: Operations, study: str) -> Any:  # noqa: ANN401
        if study == "badc0ffe":
            raise error
        return look(self, study)

    monkeypatch.setattr(views, "study_view", failing)
    monkeypatch.setattr(Operations, "look", unlucky)
    shown = {v.id: v for v in verbs.studies()}
    assert shown[good].error == ""
    assert type(error).__name__ in shown["badc0ffe"].error
    summaries = Summaries(verbs)
    for name in (good, "badc0ffe"):
        summaries.of(verbs.loop.store.studies.get(name))
    assert summaries.renew() == 2
    by_study = {n: summaries.of(verbs.loop.store.studies.get(n)) for n in (good, "badc0ffe")}
    first, second = by_study[good], by_study["badc0ffe"]
    assert first is not None and first.saving is not None
    assert second is not None and type(error).__name__ in second.error


def claims(energy_j: float, power_w: float = 500.0) -> Outcome:
    extra = {
        "energy_j": Estimate.of_mean(energy_j, 0.0),
        "power_w": Estimate.of_mean(power_w, 0.0),
    }
    return Outcome(state=TrialState.COMPLETED, measurement=window(extra=extra))


@pytest.mark.parametrize("energy_j", [0.0, 1e-300, 9e99, 0.01])
def test_an_impossible_energy_never_wins(energy_j: float) -> None:
    world = World()
    world.start()

    def surface(at: Setting) -> Outcome:
        return completed(10.0) if at == setting() else claims(energy_j)

    order = world.run(surface)
    assert order.plan.rows[0].setting == setting()
    spoilt = [t for t in world.store.trials.list("s1") if t.setting != setting()]
    assert spoilt
    assert {t.state for t in spoilt} == {TrialState.CONTAMINATED}
    assert all(
        "implausible: energy_j" in t.reason and "check the meter" in t.reason for t in spoilt
    )
