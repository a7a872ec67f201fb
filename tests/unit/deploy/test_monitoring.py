"""The alerts and the dashboard that we ship, checked without Prometheus."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[3]
RULES = (TOP / "deploy/prometheus/rules.yml").read_text()
TESTS = (TOP / "tests/prometheus/alerts.yml").read_text()
ALERTS = re.findall(r"- alert: (\w+)", RULES)


def panels() -> list[dict[str, Any]]:
    found = json.loads((TOP / "deploy/grafana/jouletune.json").read_text())["panels"]
    return list(found)


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert len(ALERTS) == len(set(ALERTS)) >= 6
    for alert in ALERTS:
        cases = re.findall(rf"alertname: {alert}\n\s+exp_alerts:(.*)", TESTS)
        assert "" in cases, alert
        assert " []" in cases, alert


def test_every_alert_has_a_summary_and_a_place_in_the_docs_that_there_is() -> None:
    page = (TOP / "docs/monitoring.md").read_text()
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    runbooks = re.findall(
        r"runbook_url: https://docs.example.org/jouletune/monitoring/#(\S+)", RULES
    )
    assert len(runbooks) == RULES.count("summary: ") == len(ALERTS)
    assert set(runbooks) == anchors


def test_no_panel_lies_on_another() -> None:
    places = [p["gridPos"] for p in panels()]
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        above = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or above, (a, b)
    assert all(p["x"] + p["w"] <= 24 for p in places)


def test_every_panel_queries_the_chosen_data_source() -> None:
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert "jouletune_" in target["expr"]
