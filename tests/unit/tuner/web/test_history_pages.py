"""The history's page: the setting first, the study's own metrics, columns to choose, relative times."""

from __future__ import annotations

import re

import pytest

from tests.unit.tuner.cli.worlds import created, operations, slope, tune
from tests.unit.tuner.web.site import Site


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
