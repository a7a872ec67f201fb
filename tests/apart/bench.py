"""The gain of identical devices that each try a setting: four against one, in virtual time.

`python -m tests.apart.bench --output FILE`: a made-up surface of each kind and three simulated boards' true
values, ten seeds each. Nothing waits in real time; the policies and the loop are those of production.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from agents.devices.catalogue import known_truth, open_device
from agents.target.target import Target
from tests.apart.world import TrueSurface, run
from tests.bench.contest.surfaces import SurfaceProblem
from tests.bench.made_up.kinds import KINDS, made_up
from tests.bench.result import header
from tuner.core import Constraint, Objective
from tuner.main import limit_threads

BOARDS = ("simulated:tx2", "simulated:orin", "simulated:a100")
SLACK = 1.2
TOGETHER = (1, 4)
DRAWN = 1
"""The seed of the surfaces; the search beside running trials was developed on those of seed 0."""


def made_up_surface(problem: SurfaceProblem) -> TrueSurface:
    """Return a made-up surface with the noise of this bench."""
    return TrueSurface(
        name=problem.surface.name,
        space=problem.surface.space,
        truth=problem.surface.row,
        metrics=tuple(problem.surface.metrics),
        objective=problem.aim,
        constraints=problem.constraints(SLACK),
        quantities=problem.quantities,
        noise=problem.noise,
    )


def board(spec: str) -> TrueSurface:
    """Return a simulated board with its true values and the noise of this bench."""
    target = Target((open_device(spec, seed=0, state_dir=None),))
    truth = known_truth(spec)
    assert truth is not None
    return TrueSurface(
        name=spec,
        space=target.space,
        truth=truth,
        metrics=("energy_j", "latency_p99_ms"),
        objective=Objective("energy_j"),
        constraints=(Constraint("latency_p99_ms", "<=", SLACK, relative=True),),
        quantities=target.quantities,
    )


def surfaces() -> Iterator[TrueSurface]:
    """Yield the surfaces to tune."""
    yield from map(made_up_surface, made_up(DRAWN, len(KINDS)))
    yield from map(board, BOARDS)


def main() -> None:
    """Run all studies, and write their results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path, required=True)
    options.add_argument("--seeds", type=int, default=10)
    asked = options.parse_args()
    limit_threads()
    runs = []
    for surface in surfaces():
        for seed in range(asked.seeds):
            runs += [run(surface, devices, seed) for devices in TOGETHER]
        print(f"{surface.name}: {len(runs)} studies so far", flush=True)
    told = {"slack": SLACK, "seeds": asked.seeds, "runs": [asdict(each) for each in runs]}
    asked.output.write_text(json.dumps({**header(), **told}))


if __name__ == "__main__":
    main()
