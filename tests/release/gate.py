"""What 1.0 waits for: a report of real hardware of each kind, in the table of docs/hardware-report.md."""

from __future__ import annotations

import re

KINDS = {
    "an NVIDIA GPU": re.compile(r"NVIDIA", re.IGNORECASE),
    "an EPYC or a Xeon": re.compile(r"\b(EPYC|Xeon)\b", re.IGNORECASE),
    "a Jetson Orin": re.compile(r"\bOrin\b", re.IGNORECASE),
}
ROW = re.compile(r"^\|(.+)\|(.+)\|(.+)\|$", re.MULTILINE)
HEADING = "## Reports"


def missing(page: str) -> list[str]:
    """Return the kinds of hardware that no whole row of the page's table of reports names."""
    section = page.partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in row] for row in ROW.findall(section)]
    machines = [row[0] for row in rows if all(cell.strip("-–") for cell in row)]
    return [kind for kind, name in KINDS.items() if not any(map(name.search, machines))]


def waits(version: str, page: str) -> list[str]:
    """Return what is missing for 1.0.

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
