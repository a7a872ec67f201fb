"""The numbers that are written into a file are counted, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.literals import JUDGEMENT, literals, table

ROOT = Path(__file__).parents[2]
SOURCE = '''"""Says 3 and 4.5."""

PRICE = 3.0
"""Says 7."""
TABLE = {"a": (0, 1, -1, 2, 2.0, -2), True: [10**6, 1e-9, 3.0]}


def half(value: float = 0.5, *, sure: bool = False) -> float:
    """Says 8."""
    return -(value - 4) / 2.0 + f(f"{value:.3f} {5}")  # 9
'''


def test_numbers_count_wherever_they_stand_and_text_does_not() -> None:
    found = literals(SOURCE)
    assert [line for line, _ in found] == sorted(line for line, _ in found)
    assert sorted(number for _, number in found if isinstance(number, int | float)) == [
        -2, 1e-9, 0.5, 3.0, 3.0, 4, 5, 6, 10,
    ]  # fmt: skip


def test_files_are_told_with_their_sum(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SOURCE)
    (tmp_path / "none.py").write_text("x = 1\n")
    told = table([tmp_path, tmp_path / "one.py"]).splitlines()
    assert [line.split()[-1] for line in told] == ["9", "9", "18"]


def test_the_judgement_is_counted_where_nothing_is_named() -> None:
    command = [sys.executable, "-m", "tests.literals"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    own = sum(
        len(literals(file.read_text()))
        for path in JUDGEMENT
        for file in ([ROOT / path] if path.endswith(".py") else (ROOT / path).rglob("*.py"))
    )
    assert told.splitlines()[-1].split() == ["total", str(own)]
