"""The whole judgement of adaptive speculation on the reference engine, as one JSON object."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from agents.load.arrivals import read_arrivals
from tests.bench.speculation.engine import (
    BATCHES,
    BatchRates,
    Collapse,
    DraftRates,
    EngineBench,
    MovingRates,
    ProfiledTable,
    WindowTerms,
    collapse,
    drafts,
    misranked,
    moving,
    open_timer,
    segments,
)
from tuner.core import InvalidInput

DRAFTED_AT = ((1, 4), (8, 4))
"""Requests and length at which the drafts are compared."""
STRETCHES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationResult:
    """What the bench found; all rates are tokens per second."""

    draft: str
    drafts: tuple[DraftRates, ...]
    misranked: int
    table: ProfiledTable
    batches: tuple[BatchRates, ...]
    moving: MovingRates
    collapse: Collapse
    rejected_windows: int
    disturbed_windows: int
    foreign_worst: float

    def summary(self) -> dict[str, object]:
        """Return all results, with the judged ratios: to off, to the best and to the single best length."""
        rows = [
            {
                "batch": b.batch,
                "planned": b.planned,
                "best_fixed": b.best,
                "adaptive_over_off": b.ratio(0),
                "adaptive_over_best": b.ratio(b.best),
                "planned_over_best": b.rate(b.planned)[0] / b.rate(b.best)[0],
                "fixed": {str(length): b.rate(length) for length in b.fixed},
                "adaptive": b.rate(None),
            }
            for b in self.batches
        ]
        fixed = self.moving.fixed
        single = max(fixed, key=lambda length: fixed[length])
        table = self.table
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "table": {"plan": table.plan, "points": table.points, "of": table.of, "why": table.why},
            "batches": rows,
            "moving": {
                "loads": self.moving.loads,
                "adaptive_over_off": self.moving.adaptive / fixed[0],
                "adaptive_over_single_best": self.moving.adaptive / fixed[single],
                "single_best": single,
                "fixed": {str(length): rate for length, rate in fixed.items()},
                "adaptive": self.moving.adaptive,
            },
            "geometric_mean_over_off": math.exp(
                statistics.fmean(math.log(b.ratio(0)[0]) for b in self.batches)
            ),
        }


def judge(
    terms: WindowTerms, arrivals_s: Sequence[float], report: Callable[[str], None]
) -> SpeculationResult:
    """Compare drafts, profile by the policy, and judge its plan.

    Raises:
        InvalidInput: a trained model cannot be read.
    """
    timer = open_timer(report)
    with timer.running():
        bench = EngineBench(timer, terms, report)
        report("comparing drafts")
        compared = [
            found
            for batch, length in DRAFTED_AT
            for found in drafts(bench, timer, batch, length, terms.rounds, terms.seconds)
        ]
        at = {
            d: [r.measured for r in compared if r.draft == d] for d in {r.draft for r in compared}
        }
        best = max(at, key=lambda d: math.prod(at[d]))
        table = bench.profile(best)
        rates = tuple(bench.rates(batch, table.plan, best) for batch in BATCHES)
        report("moving load")
        loads = segments(arrivals_s, STRETCHES, BATCHES[-1])
        moved = moving(bench, timer, table.plan, best, loads, terms.seconds / 2.0)
        report("collapse of acceptance")
        fell = collapse(timer, table.plan, 1, 10.0)
    by_load = [[r for r in compared if r.batch == batch] for batch, _ in DRAFTED_AT]
    rejected, disturbed, worst = bench.disturbed
    return SpeculationResult(
        draft=best,
        drafts=tuple(compared),
        misranked=sum(map(misranked, by_load)),
        table=table,
        batches=rates,
        moving=moved,
        collapse=fell,
        rejected_windows=rejected,
        disturbed_windows=disturbed,
        foreign_worst=worst,
    )


def long_trace(path: Path) -> tuple[float, ...]:
    """Return the seconds at which a trace's requests arrived. Raises InvalidInput: no trace, or short."""
    moments = read_arrivals(path)
    if len(moments) < STRETCHES:
        raise InvalidInput(
            f"the trace {path} has {len(moments)} requests", hint="name a longer one"
        )
    return moments
