"""Names of engines: each has its file beside it in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agents.workloads.http.llm.engines import ENGINES, LlmEngine

PAGE = Path(__file__).parents[6] / "docs/llm.md"


def rows() -> dict[str, str]:
    """Return the file of each name in the page's table, with its release or commit."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("### Names and their files")[2].partition("\n## ")[0]
    cells = [line.split("|")[1:5] for line in table.splitlines() if line.startswith("| `")]
    assert all(re.search(r"release|[0-9a-f]{7,}", at) for *_, at in cells)
    return {name: file for names, _, file, _ in cells for name in re.findall("`([^`]+)`", names)}


def names(engine: LlmEngine) -> set[str]:
    histograms = {name for group in engine.histograms.values() for name in group}
    delay = engine.unload_delay.replace("_", "-")
    flags = {f"--{delay}"} if delay else set()
    return {*histograms, engine.tokens, engine.running, *flags} - {""}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda one: one.name)
def test_each_metric_name_has_its_file_on_the_page(engine: LlmEngine) -> None:
    listed = rows()
    assert names(engine) <= listed.keys()
    assert all("`" in listed[name] or "the same" in listed[name] for name in names(engine))
