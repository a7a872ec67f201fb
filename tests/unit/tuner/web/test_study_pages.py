"""A study's page: status first, sorted trials; the history's page: the setting first, columns to choose."""

from __future__ import annotations

import re

import pytest

from tests.unit.tuner.cli.worlds import created, operations, slope, tune
from tests.unit.tuner.web.site import Site, send, text_of
from tuner.web.looks import Looks
from tuner.web.study_pages import SUGGESTED, trial_table


@pytest.fixture(scope="module")
def tuned() -> tuple[Site, str]:
    site = Site(operations())
    study = created(site.verbs)
    tune(site.verbs, slope)
    return site, study


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r'aria-label="compare trial (\d+)"', text)]


def test_status_reason_and_next_step_come_first(tuned: tuple[Site, str]) -> None:
    site, study = tuned
    text = text_of(site.signed_in("viewer").get(f"/studies/{study}"))
    assert text.index("holding") < text.index("Next:") < text.index("Last changed by ann")
    assert "--constraint" not in text


def test_trials_are_sorted_by_any_column_and_filtered(tuned: tuple[Site, str]) -> None:
    site, study = tuned
    browser = site.signed_in("viewer", "vera")
    page = browser.get(f"/studies/{study}?sort=energy_j").text
    look = Looks(site.verbs).at(study)
    table = trial_table(look, "energy_j", "", 1)
    energies = [t.metrics["energy_j"].mean for t in table.rows]
    assert energies == sorted(energies)
    assert numbers(page) == [t.number for t in table.rows]
    down = trial_table(look, "-gpu.clock_mhz", "feasible", 1)
    clocks = [t.setting["gpu.clock_mhz"] for t in down.rows]
    assert clocks == sorted(clocks, reverse=True)
    assert table.knobs == ["gpu.clock_mhz"] and table.groups["feasible"] == len(look.trials)
    assert trial_table(look, "no such column", "", 99).page == table.last == 1
    assert 'aria-sort="ascending"' in page


def test_charts_and_table_have_one_unit(tuned: tuple[Site, str]) -> None:
    site, study = tuned
    table = trial_table(Looks(site.verbs).at(study), "trial", "", 1)
    assert table.units["energy_j"].unit == "J"
    page = site.signed_in("viewer", "joe").get(f"/studies/{study}").text
    assert page.count("energy_j (J)") >= 3


def test_a_lost_capacity_is_kept_by_a_button() -> None:
    name = "throughput_per_s >= 0.95x baseline"
    text = f'throughput_per_s is 25.9 % lower: add the constraint "{name}" to keep it'
    assert SUGGESTED.findall(text) == [name]
    assert SUGGESTED.sub("", text) == "throughput_per_s is 25.9 % lower"
    old = text.replace("add the constraint", "add --constraint")
    assert SUGGESTED.sub("", old) == "throughput_per_s is 25.9 % lower"
    site = Site(operations())
    study = created(site.verbs)
    page = site.signed_in("operator").get(f"/studies/{study}/constraints", params={"add": name})
    assert f"latency_p99_ms &lt;= 1.2x baseline\n{name.replace('>', '&gt;')}" in page.text


def test_only_real_changes_of_constraints_are_listed_with_author_and_reason() -> None:
    site = Site(operations())
    study = created(site.verbs)
    tune(site.verbs, slope)
    browser = site.signed_in("operator", "ann")
    at = f"/studies/{study}/constraints"
    send(browser, at, at, do="set", constraints="latency_p99_ms <= 500", why="looser SLO")
    changes = site.verbs.constraint_changes(study)
    assert len(site.verbs.revisions(study)) > len(changes) == 2
    assert changes[-1].added == ("latency_p99_ms <= 500.0",)
    assert changes[-1].removed == ("latency_p99_ms <= 1.2x baseline",)
    text = text_of(browser.get(at))
    assert "looser SLO" in text and "Restore these" in text
    assert "No change: the held setting keeps the new limits." in text


@pytest.fixture(scope="module")
def browsed() -> Site:
    site = Site(operations())
    created(site.verbs)
    tune(site.verbs, slope)
    return site


def heads(page: str) -> list[str]:
    cells = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page)
    return [re.sub(r"<[^>]*>|[▼▲]", "", head).strip() for head in cells]


def test_the_setting_and_the_studys_own_metrics_come_first(browsed: Site) -> None:
    page = browsed.signed_in("viewer").get("/history").text
    expected = ["compare", "trial", "setting, unlike the baseline", "energy_j", "latency_p99_ms",
              "verdict", "start", "device"]  # fmt: skip
    assert heads(page) == expected
    assert "gpu.clock_mhz=800" in page and "batch_size=1" not in page
    assert re.search(r'<time datetime="[^"]+" title="[^"]+Z">[^<]+</time>', page)


def test_columns_are_chosen_and_kept_by_the_links(browsed: Site) -> None:
    page = browsed.signed_in("viewer", "vera").get("/history?columns=power_w&columns=phase").text
    assert heads(page) == ["compare", "trial", "setting, unlike the baseline", "power_w", "verdict",
                           "start", "phase"]  # fmt: skip
    assert "columns=phase&amp;columns=power_w" in page or "columns=phase&columns=power_w" in page


@pytest.mark.parametrize("since", ["2d", "36h", "2026-01-01T00:00"])
def test_relative_times_are_accepted_as_absolute_ones(browsed: Site, since: str) -> None:
    answer = browsed.signed_in("viewer", f"v{len(since)}").get("/history", params={"since": since})
    assert answer.status_code == 200
