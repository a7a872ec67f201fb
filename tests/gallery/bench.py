"""Tunes the gallery's programs: `python -m tests.gallery.bench [NAME…] --output FILE.json`.

Each is tuned by a real `jouletune run`. Then every setting is measured, and the chosen setting runs in
turns with the baseline, the setting "off" and the best of all. Results of other programs stay in the
file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.result import header
from tests.bench.tuned_command import chosen, saving, studied
from tests.gallery.entries import ENTRIES, PROGRAMS, Entry
from tests.gallery.running import result_of

SWEEPS, ROUNDS = 3, 10
MOST_SETTINGS = 60
Means = dict[str, float]


def measured(entry: Entry, settings: Sequence[Mapping[str, str]], rounds: int) -> list[list[Means]]:
    """Return the results of each setting, one per round; every second round is in reverse order."""
    results: list[list[Means]] = [[] for _ in settings]
    for number in range(rounds):
        order = range(len(settings)) if number % 2 == 0 else reversed(range(len(settings)))
        for index in order:
            words = entry.words(settings[index])
            results[index].append(result_of(PROGRAMS / entry.program, words))
    return results


def means(results: Sequence[Means]) -> Means:
    """Return the mean of each metric."""
    return {name: statistics.fmean(one[name] for one in results) for name in results[0]}


def swept(entry: Entry) -> list[dict[str, Any]]:
    """Measure every setting; return its means, the objective's error, and whether it keeps the limits."""
    found = measured(entry, entry.settings, SWEEPS)
    baseline = means(found[0])
    return [
        {
            "setting": setting,
            "means": means(results),
            "stderr": statistics.stdev(r[entry.objective] for r in results) / math.sqrt(SWEEPS),
            "kept": entry.keeps(means(results), baseline),
        }
        for setting, results in zip(entry.settings, found, strict=True)
    ]


def tuned(entry: Entry, folder: Path, python: str, share: float) -> dict[str, Any]:
    """Tune one entry, and compare the chosen setting in turns."""
    began = time.monotonic()
    options = [*entry.options, "--foreign-share", str(share)]
    result = studied(entry.title, [python, *entry.template], entry.knobs, options, folder)
    seconds = time.monotonic() - began
    every = swept(entry) if len(entry.settings) <= MOST_SETTINGS else []
    kept = [one for one in every if one["kept"]]
    arms = {
        "baseline": entry.baseline,
        "off": {**entry.baseline, **entry.off},
        "found": chosen(result, entry.baseline),
    }
    if kept:
        arms["optimum"] = min(kept, key=lambda one: float(one["means"][entry.objective]))["setting"]
    return {
        "title": entry.title,
        "program": entry.program,
        "objective": entry.objective,
        "limits": list(entry.limits),
        "settings": len(entry.settings),
        "trials": len(result["trials"]),
        "why": result["why"],
        "study_s": round(seconds, 1),
        "load": os.getloadavg()[1],
        "arms": compared(entry, arms),
        "every": every,
    }


def compared(entry: Entry, arms: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Run the arms in turns, equal ones once; return each with its saving over every other."""
    settings = list({tuple(setting.items()): setting for setting in arms.values()}.values())
    results = measured(entry, settings, ROUNDS)
    own = {arm: results[settings.index(setting)] for arm, setting in arms.items()}
    values = {arm: [one[entry.objective] for one in seen] for arm, seen in own.items()}
    base = means(own["baseline"])
    return {
        arm: {
            "setting": dict(arms[arm]),
            "means": means(own[arm]),
            "kept": entry.keeps(means(own[arm]), base),
            **{f"over_{other}": saving(values[arm], values[other]) for other in arms},
        }
        for arm in arms
    }


def beyond(saved: Mapping[str, float]) -> bool:
    """Return whether a saving is negative beyond two standard errors."""
    return saved["saving_percent"] < -2.0 * saved["saving_stderr_percent"]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("names", nargs="*", choices=[[], *ENTRIES], default=[])
    words.add_argument("--output", type=Path, required=True)
    words.add_argument("--foreign-share", type=float, default=0.3)
    given = words.parse_args()
    results = json.loads(given.output.read_text()) if given.output.exists() else {}
    for name in given.names or list(ENTRIES):
        with tempfile.TemporaryDirectory(prefix="jouletune-gallery-") as folder:
            entry = ENTRIES[name]
            results[name] = tuned(entry, Path(folder), sys.executable, given.foreign_share)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps({**results, **header()}, indent=1) + "\n")
        sys.stdout.write(f"{name}: {results[name]['arms']['found']['setting']}\n")
        sys.stdout.flush()
    entries = {name: one for name, one in results.items() if "arms" in one}
    worse = [name for name, one in entries.items() if beyond(one["arms"]["found"]["over_off"])]
    if worse:
        sys.exit(f"worse than off: {', '.join(worse)}")


if __name__ == "__main__":
    main()
