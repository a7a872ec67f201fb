"""A release waits for its frozen files, 1.0 also for reports of real hardware."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release.gate import HEADING, KINDS, frozen, missing, waits

PAGE = Path(__file__).parents[2] / "docs/hardware-report.md"
HEAD = f"""# A page
NVIDIA, Xeon and Orin are named here.
{HEADING}
| machine | date | release |
| --- | --- | --- |
"""
GPU = "| NVIDIA H100 | 2026-12-01 | 0.9.0 |\n"
CPU = "| AMD EPYC 9654 | 2026-12-01 | 0.9.0 |\n"
ORIN = "| Jetson AGX Orin 64 GB | 2026-12-01 | 0.9.0 |\n"


def test_each_kind_is_missing_until_a_complete_row_names_it() -> None:
    assert missing(HEAD) == [*KINDS]
    assert missing(HEAD + GPU + "| Xeon | – | |\n") == ["an EPYC or a Xeon", "a Jetson Orin"]
    assert missing(HEAD + GPU + CPU + ORIN) == []
    assert missing(f"{HEAD}\n## Later\n{GPU}{CPU}{ORIN}") == [*KINDS]


@pytest.mark.parametrize("version", ["1.0.0", "1.0rc1", "2.1", "10.0"])
def test_a_release_of_1_0_or_later_is_refused_without_the_reports(version: str) -> None:
    with pytest.raises(AssertionError, match="needs a report of a Jetson Orin in docs"):
        waits(version, HEAD + GPU + CPU)
    assert waits(version, HEAD + GPU + CPU + ORIN) == []


def test_a_release_of_0_x_lists_the_missing_parts() -> None:
    assert waits("0.12.3", HEAD + ORIN) == ["an NVIDIA GPU", "an EPYC or a Xeon"]


def test_the_page_has_the_table() -> None:
    assert f"\n{HEADING}\n" in PAGE.read_text()


def test_a_tagged_release_has_its_frozen_files(tmp_path: Path) -> None:
    assert "tests.frozen.make" in frozen("0.2.0", [], tmp_path)["missing"]
    with pytest.raises(AssertionError, match=r"tagged 0\.2\.0, and .*is missing"):
        frozen("0.2.0", ["0.2.0"], tmp_path)
    (tmp_path / "0.2.0").mkdir()
    assert frozen("0.2.0", ["0.2.0"], tmp_path) == {}
