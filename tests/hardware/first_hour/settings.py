"""Whether `nvidia-smi -q` shows the same settings before and after.

It is evidence for the host's owner, who knows that program; the product itself never runs it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

DEADLINE_S = 20.0
READING = re.compile(
    r"timestamp|temp|utilization|draw|usage|process|fan speed|performance state|throughput|replay|reason"
    r"|stats|samples|ecc errors|remap|retired|voltage|margin|energy|(^|> )clocks >"
    r"|(generation|width) > .*current",
    re.IGNORECASE,
)
"""Lines whose place matches are readings, not settings."""


def shown() -> str:
    """Return the output of `nvidia-smi -q`; empty if it is missing or does not end."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "-q"], capture_output=True, text=True, timeout=DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def lines(text: str) -> Mapping[str, str]:
    """Return each value by its place: its headings, and its name."""
    by_place: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("="):
            continue
        depth = len(line) - len(line.lstrip())
        name, colon, value = (part.strip() for part in line.partition(" : "))
        above = [one for one in above if one[0] < depth]
        place = " > ".join([*(heading for _, heading in above), name.strip(": ")])
        if colon or " :" in line:
            by_place[place if place not in by_place else f"{place} ({len(by_place)})"] = value
        else:
            above.append((depth, name))
    return by_place


def compared(before: str, after: str) -> dict[str, Any]:
    """Return the changed settings, and the number of changed readings."""
    if not before or not after:
        return {"not_run": "nvidia-smi is not there, or did not answer"}
    was, now = lines(before), lines(after)
    differing = sorted(p for p in was.keys() | now.keys() if was.get(p) != now.get(p))
    settings = [place for place in differing if not READING.search(place)]
    return {
        "lines": len(was),
        "equal_but_for_readings": not settings,
        "changed": {place: [was.get(place), now.get(place)] for place in settings},
        "readings_that_differ": len(differing) - len(settings),
    }
