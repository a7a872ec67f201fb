"""The choice of the steps between two averagings, against each fixed number of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jouletune_bench.fleet.rounds import INTERVALS
from tests.bench.federated.compare import OURS, Bench
from tests.bench.federated.judge import best_of, judged
from tests.bench.federated.setups import FederationSetup

MOST = 1.2
"""The largest ratio of the joules to the target to those of the best fixed interval."""
ALONE = {"participants": 10, "batch_size": 8}
"""The other knobs of all rounds: only the steps are chosen."""


@dataclass(frozen=True)
class IntervalComparison:
    """The policy against the best fixed number of steps, on one federation."""

    title: str
    target: float
    best_fixed: Mapping[str, int]
    ratio: float
    by_seed: tuple[float, ...]
    missed: tuple[int, ...]
    rounds: tuple[int | None, ...]
    steps: tuple[int, ...]
    kept: bool


def compare_intervals(bench: Bench, title: str, federation: FederationSetup) -> IntervalComparison:
    """Return the result of the policy that chooses only the steps, by joules."""
    by_steps = replace(federation, intervals=INTERVALS, held=ALONE)
    grid = [{**ALONE, "averaging_steps": steps} for steps in INTERVALS]
    target = bench.target(by_steps, grid)
    fixed = bench.fixed(by_steps, grid, target)
    (ours,) = bench.played(by_steps, [(OURS, "energy_j")], target)
    judgement = judged("energy_j", target, grid, fixed, ours, ours, fixed[0])
    return IntervalComparison(
        title,
        target,
        grid[best_of(fixed, target, "energy_j")],
        judgement.ratio,
        judgement.by_seed,
        judgement.missed,
        tuple(run.rounds_to(target) for run in ours),
        tuple(int(str(s["averaging_steps"])) for s in ours[0].settings),
        judgement.ratio <= MOST and not judgement.missed,
    )
