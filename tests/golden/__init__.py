"""What a command prints, compared with its golden file: `tests/golden/COMMAND.txt`, in named sections.

A sentence is changed at its source and here: `make golden` writes the files anew, and `git diff` shows what
an operator reads differently.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parent
REWRITE = "JOULETUNE_GOLDEN"
"""Set by `make golden`: what is printed is written down, not compared."""
SECTION = re.compile(r"^=== (.+) ===\n", re.MULTILINE)


TIME = re.compile(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:?\d\d|Z)?")
AGE = re.compile(r"\b\d+ (?:s|min|h|days?) ago")
CREATED = re.compile(r"\bstudy ([0-9a-f]{8}) created")


def steady(text: str, **names: object) -> str:
    """Return a text with times as TIME, ages as AGO, a new study as NEW, and values by their names."""
    for made in CREATED.findall(text):
        text = text.replace(made, "NEW")
    for name, value in names.items():
        text = text.replace(str(value), name)
    return AGE.sub("AGO", TIME.sub("TIME", text))


def sections(file: Path) -> dict[str, str]:
    """Return the sections of a golden file by their names; none where there is no file."""
    if not file.exists():
        return {}
    _, *parts = SECTION.split(file.read_text(encoding="utf-8"))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def golden(command: str, situation: str, printed: str) -> None:
    """Compare what a command prints in a situation with its golden file, or write it down there."""
    file = FOLDER / f"{command.replace(' ', '-')}.txt"
    text = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    known = sections(file)
    if REWRITE in os.environ:
        known[situation] = text
        file.write_text(
            "".join(f"=== {name} ===\n{known[name]}" for name in sorted(known)), encoding="utf-8"
        )
    assert text == known.get(situation, ""), f"{file.name}: {situation}; if meant: make golden"
