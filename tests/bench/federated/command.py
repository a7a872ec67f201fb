"""`python -m tests.bench.federated FILE`: compare, and write what came of it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.federated.compare import Bench, federations
from tests.bench.federated.plot import draw
from tuner import files

PICTURED = {"digits, α = 0.1": "federated.png"}
"""Which comparison is drawn, into which file."""


def main() -> None:
    """Run the whole comparison, or federations whose title contains a text."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.federated", description=__doc__)
    parser.add_argument(
        "output", type=Path, help="the JSON file, written anew after each federation"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("build/federated"), help="kept trainings"
    )
    parser.add_argument("--plots", type=Path, help="a folder for the pictures")
    parser.add_argument("--only", default="", help="a part of the titles to run")
    options = parser.parse_args()
    bench = Bench(options.cache, os.cpu_count() or 1, _report)
    found: list[dict[str, Any]] = []
    for title, federation in federations().items():
        if options.only not in title:
            continue
        found.append(asdict(bench.compare(title, federation)))
        files.write(options.output, json.dumps({"federations": found}, indent=1))
        if options.plots and title in PICTURED:
            draw(options.plots / PICTURED[title], found[-1])


def _report(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
