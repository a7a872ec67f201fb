"""docs/promises.md has exactly the promises of the tests' marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises import PAGE, TOP, Promise, page, promises


def test_the_page_of_promises_is_current() -> None:
    assert PAGE.read_text() == page(promises()), "run `make promises`"


def test_the_tests_of_a_promise_make_one_row(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(
        "import pytest\n"
        '@pytest.mark.promise("it dies", "it is started again")\ndef test_a() -> None: ...\n'
        "class Contract:\n"
        '    @pytest.mark.promise("it dies")\n    def test_b(self) -> None: ...\n'
    )
    written = page(promises(tmp_path))
    assert written.endswith("| it dies | it is started again | 2 |\n")


def test_a_promise_that_no_test_words_is_refused() -> None:
    with pytest.raises(ValueError, match="test_a"):
        page([Promise("it dies", "", "test_a")])


def test_the_readme_is_short_and_leads_to_the_promises() -> None:
    text = (TOP / "README.md").read_text()
    assert "(docs/promises.md)" in text
    assert len(text.splitlines()) <= 90
