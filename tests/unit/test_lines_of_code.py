"""What counts as a line of code."""

from __future__ import annotations

from pathlib import Path

from tests.lines_of_code import PRODUCT, lines_of_code, table

TEXT = '''"""A module's
docstring."""

LIMIT = 3  # a comment beside code
# a comment alone
"""What LIMIT is."""


def text() -> str:
    """A docstring."""
    return """two
lines"""
'''


def test_blank_lines_comments_and_docstrings_are_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(TEXT)
    assert lines_of_code(file) == 4


def test_the_total_is_of_the_product_and_the_tests_are_told_apart(tmp_path: Path) -> None:
    for room in (*PRODUCT, "tests"):
        (tmp_path / room / "inner").mkdir(parents=True)
        (tmp_path / room / "inner" / "module.py").write_text(TEXT)
    rows = [line.split() for line in table(tmp_path).splitlines()[1:]]
    assert rows == [
        *([room, "1", "4"] for room in PRODUCT),
        ["total", "4", "16"],
        ["tests", "1", "4"],
    ]
