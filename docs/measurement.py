"""Write the table of docs/measurement.md: `python docs/measurement.py`. A rule's docstring is its row."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner.core import witnesses
from tuner.core.witnesses import RULES

PAGE = Path(__file__).with_name("measurement.md")
COLUMNS = ("Witnesses", "Tolerance", "Source", "Result")
TABLE = "| rule | question | witnesses | tolerance | source | result |\n|---|---|---|---|---|---|\n"


def row(rule: Callable[..., Any]) -> str:
    """Return the table's row of a rule."""
    question, _, rest = inspect.cleandoc(rule.__doc__ or "").partition("\n\n")
    values = vars(witnesses)
    cells = [rule.__name__, question]
    for name in COLUMNS:
        match = re.search(rf"^{name}: (.*(?:\n +.*)*)", rest, re.MULTILINE)
        assert match is not None, f"{rule.__name__} gives no {name}"
        cells.append(" ".join(match[1].format_map(values).split()))
    return "| " + " | ".join(cells) + " |"


def page() -> str:
    """Return the page with the table of the rules."""
    head = PAGE.read_text().partition(TABLE)[0]
    return head + TABLE + "\n".join(row(rule) for _, rule in RULES) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
