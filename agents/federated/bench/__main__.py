"""`python -m agents.federated.bench`: print the comparison as JSON; progress goes to the error stream."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from agents.federated.bench.compare import Bench, federations
from agents.federated.bench.plot import draw

PICTURED = {"digits, α = 0.1": "federated.png"}
"""Which comparison is drawn, into which file."""


def main() -> None:
    """Run the whole comparison, or federations whose title contains a text."""
    parser = argparse.ArgumentParser(prog="python -m agents.federated.bench", description=__doc__)
    parser.add_argument(
        "--cache", type=Path, default=Path("build/federated"), help="kept trainings"
    )
    parser.add_argument("--plots", type=Path, help="a folder for the pictures")
    parser.add_argument("--only", default="", help="a part of the titles to run")
    options = parser.parse_args()
    bench = Bench(options.cache, os.cpu_count() or 1, _told)
    found = [
        asdict(bench.compare(title, federation))
        for title, federation in federations().items()
        if options.only in title
    ]
    for one in found if options.plots else ():
        if one["title"] in PICTURED:
            draw(options.plots / PICTURED[one["title"]], one)
    json.dump({"federations": found}, sys.stdout, indent=1)


def _told(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
