"""Print the share of lines and branches that tests reached, one number per room: `make coverage`."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from pathlib import Path

from coverage import Coverage


def by_room(report: Path) -> dict[str, tuple[int, int]]:
    """Return reached and possible lines and branches of each room from coverage's JSON report."""
    reached: Counter[str] = Counter()
    possible: Counter[str] = Counter()
    for name, file in json.loads(report.read_text())["files"].items():
        room = "/".join(Path(name).parts[:2]).removesuffix(".py")
        summary = file["summary"]
        reached[room] += summary["covered_lines"] + summary["covered_branches"]
        possible[room] += summary["num_statements"] + summary["num_branches"]
    return {room: (reached[room], possible[room]) for room in sorted(possible)}


def main() -> None:
    """Read the combined data of the last run, and print a line per room, and the total."""
    data = Coverage(config_file="pyproject.toml")
    data.load()
    report = Path("build/coverage.json")
    report.parent.mkdir(exist_ok=True)
    data.json_report(outfile=str(report), ignore_errors=True)
    rooms = by_room(report)
    out = io.StringIO()
    for room, (reached, possible) in rooms.items():
        out.write(f"{100 * reached / max(possible, 1):6.1f} %  {room}\n")
    reached, possible = (sum(pair[i] for pair in rooms.values()) for i in (0, 1))
    out.write(f"{100 * reached / max(possible, 1):6.1f} %  in all\n")
    sys.stdout.write(out.getvalue())


if __name__ == "__main__":
    main()
