"""The conditions of a release: its frozen files; for 1.0 also reports of each kind of real hardware.

The reports are in the table of docs/hardware-report.md, the files in tests/frozen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

KINDS = {
    "an NVIDIA GPU": re.compile(r"NVIDIA", re.IGNORECASE),
    "an EPYC or a Xeon": re.compile(r"\b(EPYC|Xeon)\b", re.IGNORECASE),
    "a Jetson Orin": re.compile(r"\bOrin\b", re.IGNORECASE),
}
ROW = re.compile(r"^\|(.+)\|(.+)\|(.+)\|$", re.MULTILINE)
HEADING = "## Reports"


def missing(page: str) -> list[str]:
    """Return the kinds of hardware without a complete row in the page's table of reports."""
    section = page.partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in row] for row in ROW.findall(section)]
    machines = [row[0] for row in rows if all(cell.strip("-–") for cell in row)]
    return [kind for kind, name in KINDS.items() if not any(map(name.search, machines))]


def frozen(version: str, tags: Sequence[str], top: Path) -> dict[str, str]:
    """Return the missing frozen files of a version.

    Raises:
        AssertionError: they are missing, and the commit is tagged.
    """
    folder = top / version
    if folder.is_dir():
        return {}
    missing = f"{folder} is missing: run `python -m tests.frozen.make`"
    assert not tags, f"this commit is tagged {', '.join(tags)}, and {missing}"
    return {"missing": missing}


def waits(version: str, page: str) -> list[str]:
    """Return the missing conditions for 1.0.

    Raises:
        AssertionError: the version is 1.0 or later, and something is missing.
    """
    lacks = missing(page)
    is_later = int(version.partition(".")[0]) >= 1
    assert not (is_later and lacks), (
        f"version {version} needs a report of {', of '.join(lacks)} in docs/hardware-report.md; "
        "release it as 0.x, or add the reports"
    )
    return lacks
