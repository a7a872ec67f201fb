"""Print the changes since a commit: `--types` the Python files, `--tests` the unit tests of their rooms.

A room is a folder of the product; its tests have the same path under tests/unit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[1]


def changed(base: str) -> list[Path]:
    """Return the Python files that differ from `base` or are not yet tracked, and still exist."""
    commands = (
        ("git", "diff", "--name-only", base, "--", "*.py"),
        ("git", "ls-files", "--others", "--exclude-standard", "--", "*.py"),
    )
    names = {
        name
        for command in commands
        for name in subprocess.run(
            command, cwd=TOP, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    }
    return sorted(Path(name) for name in names if (TOP / name).exists())


def tests_of(path: Path) -> Path | None:
    """Return the test file or the folder of tests of a file; None if there is none."""
    if path.parts[0] == "tests":
        return path if path.name.startswith("test_") else None
    room = Path("tests/unit") / path.parent
    return room if (TOP / room).is_dir() else None


def main(what: str, base: str = "HEAD") -> None:
    """Print the files to check, or the tests to run, on one line."""
    paths = changed(base)
    if what == "--tests":
        found = {tests for path in paths if (tests := tests_of(path)) is not None}
        paths = sorted(one for one in found if not found & set(one.parents))
    elif not paths:
        paths = [Path("tuner/errors.py")]  # mypy without a file checks everything
    sys.stdout.write(" ".join(map(str, paths)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
