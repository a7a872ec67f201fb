"""The examples in `docs/extend.md` are the files that the tests of this folder run."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/extend.md"


def test_every_example_on_the_page_is_run() -> None:
    quoted = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    run = [path.read_text() for path in HERE.glob("*.py")]
    assert len(quoted) == 2, "a device and a policy"
    for example in quoted:
        assert any(example in text for text in run), example


def test_the_entry_points_on_the_page_are_those_that_are_installed() -> None:
    page, tests = PAGE.read_text(), "".join(p.read_text() for p in HERE.glob("test_*.py"))
    for line in ('twoclock = "twoclock:open_twoclock"', 'frugal = "frugal:Frugal"'):
        assert line in page and line.replace('"', "") in tests.replace('"', "")
