"""The output of commands, compared with golden files: `tests/golden/COMMAND.txt`, in named sections.

After a change of a sentence `make golden` rewrites the files, and `git diff` shows the changes that an
operator sees.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

FOLDER = Path(__file__).parent
REWRITE = "JOULETUNE_GOLDEN"
"""Set by `make golden`: outputs are written to the files, not compared."""
SECTION = re.compile(r"^=== (.+) ===\n", re.MULTILINE)


TIME = re.compile(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:?\d\d|Z)?")
AGE = re.compile(r"\b\d+ (?:s|min|h|days?) ago")
CREATED = re.compile(r"\bstudy ([0-9a-f]{8}) created")


def steady(text: str, **names: object) -> str:
    """Return a text with times, ages, today's date, a new study and values replaced by their names."""
    for made in CREATED.findall(text):
        text = text.replace(made, "NEW")
    for name, value in names.items():
        text = text.replace(str(value), name)
    text = AGE.sub("AGO", TIME.sub("TIME", text))
    for day in today():
        text = text.replace(day, "YYYY-MM-DD")
    return text


def today() -> list[str]:
    """Return the date, and yesterday's: midnight may have passed since the output."""
    now = datetime.now(UTC)
    return [(now - timedelta(days=days)).date().isoformat() for days in (0, 1)]


def sections(file: Path) -> dict[str, str]:
    """Return the sections of a golden file by their names; empty without a file."""
    if not file.exists():
        return {}
    _, *parts = SECTION.split(file.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def golden(command: str, situation: str, printed: str) -> None:
    """Compare a command's output in a situation with its golden file, or write it there."""
    for day in today():
        assert day not in printed, f"{command}, {situation}: compares the date; use steady()"
    file = FOLDER / f"{command.replace(' ', '-')}.txt"
    text = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    known = sections(file)
    if REWRITE in os.environ:
        known[situation] = text
        file.write_text(
            "".join(f"=== {name} ===\n{known[name]}" for name in sorted(known)), encoding="utf-8"
        )
    assert text == known.get(situation, ""), f"{file.name}: {situation}; if meant: make golden"
