"""A contest of schemes that follow the load: studies with different seeds, each judged like a plan.

The rule was fixed before the runs. Of the schemes that finish and keep the limits in every cell, the one
with the highest mean captured share wins: the share of the difference between the best single setting and
the per-load oracle. The mean is over cells where more than 3 % is possible. A share is cut to 0 … 1, and is
0 if limits are broken. Within one paired standard error the scheme with fewer lines wins. If none keeps the
limits everywhere, today's plan with the escape wins.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tests.bench.load.judge import (
    DEFAULT,
    ORACLE,
    SHM,
    SINGLE,
    Cell,
    Task,
    above,
    energy,
    hindsight,
    opened,
    ratios,
)
from tests.bench.load.kept import KeptRuns
from tests.bench.load.play import play
from tests.bench.load.schemes import LINES, PLAN, SCHEMES, Studied
from tests.bench.load.servers import opener

LEAST_POSSIBLE = 0.03
JUDGED_SEEDS = 5
"""The number of a cell's seeds for each study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """One study of one scheme in one cell; shares of the default's energy, and of windows."""

    server: str
    trace: str
    scheme: str
    seed: int
    single: float
    oracle: float
    possible: float
    saving: float
    way: float
    above: float
    worst: float
    keeps: bool
    windows: int
    tuning_windows: int
    tuning_above: float
    tuning_worst: float
    hours: float
    cpu_s: float
    held: str


def contest(tasks: Iterable[Task], seeds: Mapping[str, int], output: Path, kept: KeptRuns) -> None:
    """Append a line for each study that is not in the file; `seeds` are the studies of each scheme."""
    known = read(output)
    have = {(r["server"], r["trace"], r["scheme"], r["seed"]) for r in known}
    for task in tasks:
        due = [
            (scheme, seed)
            for scheme, count in seeds.items()
            for seed in range(count)
            if (task.server, task.trace, scheme, seed) not in have
        ]
        if not due:
            continue
        (cell,) = opened(task, opener(task.server), kept, task.share)
        hindsight(cell, {})
        for scheme, seed in due:
            row = study(cell, scheme, seed)
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """Return the studies of a file of earlier runs."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def study(cell: Cell, scheme: str, seed: int) -> StudyRow:
    """Run one study of a scheme and judge it."""
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as folder:
        began = time.process_time()
        studied = SCHEMES[scheme](cell, seed, Path(folder))
        return _judged(cell, scheme, seed, studied, time.process_time() - began)


def _judged(cell: Cell, scheme: str, seed: int, studied: Studied, cpu_s: float) -> StudyRow:
    seeds, end_s = cell.seeds[:JUDGED_SEEDS], cell.turns * cell.task.until_s
    runs = [
        play(studied.open_server, cell.requests(s), studied.controller(), s, end_s) for s in seeds
    ]
    default, single, oracle = (
        energy(cell.runs[arm][: len(seeds)]) for arm in (DEFAULT, SINGLE, ORACLE)
    )
    mine, seen = energy(runs), ratios(runs, cell.limits)
    kept = above(seen) <= cell.floor[0] and max(seen) <= cell.floor[1]
    return StudyRow(
        server=cell.task.server,
        trace=cell.task.trace,
        scheme=scheme,
        seed=seed,
        single=1.0 - single / default,
        oracle=1.0 - oracle / default,
        possible=1.0 - oracle / single,
        saving=1.0 - mine / default,
        way=(single - mine) / (single - oracle) if single > oracle else 0.0,
        above=above(seen),
        worst=max(seen),
        keeps=kept and not sum(run.unanswered for run in runs),
        windows=len(seen),
        tuning_windows=len(studied.tails),
        tuning_above=above(studied.tails),
        tuning_worst=max(studied.tails, default=0.0),
        hours=studied.hours,
        cpu_s=cpu_s,
        held=studied.held,
    )


def tables(studies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of scheme × cell, the standing by the rule, and the winner."""
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in studies:
        cell = groups.setdefault((row["server"], row["trace"]), {})
        cell.setdefault(row["scheme"], []).append(row)
    cells = [
        {
            "server": server,
            "trace": trace,
            **{key: next(iter(own.values()))[0][key] for key in ("single", "oracle", "possible")},
            "schemes": [_told(scheme, rows) for scheme, rows in own.items()],
        }
        for (server, trace), own in groups.items()
    ]
    standing = [_standing(scheme, cells) for scheme in LINES]
    return {"cells": cells, "standing": standing, "winner": winner(standing)}


def share(row: Mapping[str, Any]) -> float:
    """Return the captured share by the rule."""
    return min(1.0, max(0.0, float(row["way"]))) if row["keeps"] else 0.0


def _told(scheme: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the results of a scheme's studies in a cell, as means and largest values."""
    savings = [float(r["saving"]) for r in rows]
    means = ("saving", "above", "tuning_above", "hours", "cpu_s")
    most = ("above", "worst", "tuning_worst", "hours", "cpu_s")
    return {
        "scheme": scheme,
        "studies": len(rows),
        "spread": stdev(savings) if len(rows) > 1 else 0.0,
        "share": fmean(map(share, rows)),
        "keep": sum(bool(r["keeps"]) for r in rows),
        **{key: fmean(float(r[key]) for r in rows) for key in means},
        **{f"most_{key}": max(float(r[key]) for r in rows) for key in most},
    }


def _standing(scheme: str, cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a scheme's captured shares in the cells that count, and whether it kept all limits."""
    own = [(c, s) for c in cells for s in c["schemes"] if s["scheme"] == scheme]
    counted = {
        f"{c['server']} {c['trace']}": s["share"] for c, s in own if c["possible"] > LEAST_POSSIBLE
    }
    return {
        "scheme": scheme,
        "cells": len(own),
        "kept": sum(s["keep"] == s["studies"] for _, s in own),
        "everywhere": len(own) == len(cells) and all(s["keep"] == s["studies"] for _, s in own),
        "share": fmean(counted.values()) if counted else 0.0,
        "shares": counted,
    }


def winner(standing: Sequence[Mapping[str, Any]]) -> str:
    """Return the scheme that wins by the rule."""
    able = [s for s in standing if s["everywhere"]]
    best = max(able, key=lambda s: float(s["share"]), default=None)
    if best is None:
        return PLAN
    for other in sorted(able, key=lambda s: LINES[str(s["scheme"])]):
        apart = [best["shares"][cell] - other["shares"][cell] for cell in best["shares"]]
        error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
        if fmean(apart or [0.0]) <= error:
            return str(other["scheme"])
    return str(best["scheme"])
