"""Policies against the fixed settings: to the same accuracy, over seeds, for joules, seconds and grams."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev

from tests.bench.federated.judge import Judged, best_of, judged
from tests.bench.federated.play import Played, play, play_fixed
from tests.bench.federated.setups import FederationSetup, Fixed

OURS, PAPERS = "fedgpo", "fedgpo-qlearning"
OBJECTIVES = {"energy_j": "", "round_s": ", for time", "carbon_g": ", for carbon"}
"""The minimised metrics, with the suffixes of their arms' names."""
RIVALS = ("fedgpo-bo", "fedgpo-random")
SEEDS = (0, 1, 2, 3, 4)
REACHED = 0.95
"""The target, as a share of the best accuracy of any fixed setting with the first seed."""
DEFAULTS = "Flower's defaults"
FIXED = {
    "energy_j": "best fixed setting",
    "round_s": "fastest fixed setting",
    "carbon_g": "fixed setting of the least carbon",
}


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean, and its standard error."""

    mean: float
    stderr: float


@dataclass(frozen=True)
class Arm:
    """The cost of one way to set rounds: joules, seconds, grams and rounds to the target, over seeds.

    `reached` is the number of seeds that reached the target; in the others all rounds count, so that
    the true cost is higher. `saving` is the ratio of the defaults' joules to its own, `faster` that of
    seconds.
    """

    name: str
    energy_j: Spread
    seconds: Spread
    carbon_g: Spread
    rounds: Spread
    saving: Spread
    faster: Spread
    final_accuracy: Spread
    reached: int
    decision_ms: float


@dataclass(frozen=True)
class FederationComparison:
    """All arms on one federation, and ours against the best fixed setting in hindsight."""

    title: str
    target: float
    best_fixed: Fixed
    judged: tuple[Judged, ...]
    arms: tuple[Arm, ...]
    curves: Mapping[str, Sequence[Mapping[str, float]]]
    settings: Sequence[Mapping[str, float]]


class Bench:
    """Runs trainings in parallel on all cores; those at fixed settings are cached in a folder."""

    def __init__(self, cache: Path, workers: int, report: Callable[[str], None]) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self._cache, self._told = cache, report
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def target(self, federation: FederationSetup, grid: Sequence[Fixed]) -> float:
        """Return the target accuracy, from whole trainings at some fixed settings."""
        jobs = [(federation, setting, SEEDS[0], self._cache, 1.0) for setting in grid]
        runs = self._pool.map(_kept, *zip(*jobs, strict=True))
        return REACHED * max(run.final_accuracy for run in runs)

    def fixed(
        self, federation: FederationSetup, grid: Sequence[Fixed], target: float
    ) -> list[list[Played]]:
        """Return the trainings to a target at each fixed setting, one per seed."""
        jobs = [(federation, s, seed, self._cache, target) for s in grid for seed in SEEDS]
        return _by_seeds(list(self._pool.map(_kept, *zip(*jobs, strict=True))))

    def played(
        self, federation: FederationSetup, asked: Sequence[tuple[str, str]], target: float
    ) -> list[list[Played]]:
        """Return the trainings to a target under each policy and objective, one per seed."""
        jobs = [(federation, name, seed, target, aim) for name, aim in asked for seed in SEEDS]
        return _by_seeds(list(self._pool.map(play, *zip(*jobs, strict=True))))

    def compare(
        self, title: str, federation: FederationSetup, rivals: bool = False
    ) -> FederationComparison:
        """Return the comparison of the policies and the fixed settings on one federation."""
        grid = federation.grid
        target = self.target(federation, grid)
        fixed = self.fixed(federation, grid, target)
        (defaults,) = self.fixed(federation, [federation.defaults], target)
        asked = {
            name + called: (name, metric)
            for name in (OURS, PAPERS)
            for metric, called in OBJECTIVES.items()
        }
        asked |= {name: (name, "energy_j") for name in RIVALS if rivals}
        played = self.played(federation, list(asked.values()), target)
        policies = dict(zip(asked, played, strict=True))
        best = {metric: best_of(fixed, target, metric) for metric in OBJECTIVES}
        runs = {DEFAULTS: defaults, **{FIXED[m]: fixed[i] for m, i in best.items()}, **policies}
        judgements = tuple(
            judged(
                metric,
                target,
                grid,
                fixed,
                policies[OURS + called],
                policies[PAPERS + called],
                defaults,
            )
            for metric, called in OBJECTIVES.items()
        )
        for one in judgements:
            self._told(f"{title}: {told(one)}")
        return FederationComparison(
            title,
            target,
            grid[best["energy_j"]],
            judgements,
            tuple(_arm(name, own, defaults, target) for name, own in runs.items()),
            {name: _curve(own[0]) for name, own in runs.items()},
            [{k: float(str(v)) for k, v in s.items()} for s in policies[OURS][0].settings],
        )


def told(one: Judged) -> str:
    """Return a judgement as one line of text."""
    seeds = " ".join(f"{ratio:.2f}" for ratio in one.by_seed)
    return (
        f"{one.objective} {one.ratio:.2f} × the best fixed ({seeds}; {list(one.best_fixed.values())}), "
        f"missed {list(one.missed)}, time {one.time_over_defaults:.2f} × the defaults'; "
        f"Q-learning {one.paper_ratio:.1f}"
    )


def _by_seeds(found: Sequence[Played]) -> list[list[Played]]:
    return [list(found[i : i + len(SEEDS)]) for i in range(0, len(found), len(SEEDS))]


def _kept(
    federation: FederationSetup, setting: Fixed, seed: int, cache: Path, target: float
) -> Played:
    """Return a training at a fixed setting, to a target; from the folder if it was run before."""
    for until in dict.fromkeys((1.0, target)):
        key = json.dumps([federation.key, dict(setting), seed, until], sort_keys=True)
        file = cache / f"{sha256(key.encode()).hexdigest()[:24]}.json"
        if file.is_file():
            kept = json.loads(file.read_text(encoding="utf-8"))
            return Played((kept["setting"],) * len(kept["metrics"]), tuple(kept["metrics"]), 0.0)
    played = play_fixed(federation, setting, seed, target)
    draft = file.with_suffix(f".{seed}.draft")
    text = json.dumps({"setting": played.settings[0], "metrics": played.metrics})
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
    return played


def _arm(name: str, runs: Sequence[Played], defaults: Sequence[Played], target: float) -> Arm:
    joules, seconds, grams = ([r.spent(m, target) for r in runs] for m in OBJECTIVES)
    usual = [[r.spent(m, target) for r in defaults] for m in ("energy_j", "round_s")]
    counts = [float(r.rounds_to(target) or len(r.metrics)) for r in runs]
    return Arm(
        name,
        _spread(joules),
        _spread(seconds),
        _spread(grams),
        _spread(counts),
        _spread([a / b for a, b in zip(usual[0], joules, strict=True)]),
        _spread([a / b for a, b in zip(usual[1], seconds, strict=True)]),
        _spread([r.final_accuracy for r in runs]),
        sum(r.rounds_to(target) is not None for r in runs),
        fmean(r.decision_ms for r in runs),
    )


def _curve(run: Played) -> list[dict[str, float]]:
    """Return a training's accuracy over the spent joules and seconds, and its joules by class."""
    joules, seconds = (
        list(itertools.accumulate(m[s] for m in run.metrics)) for s in ("energy_j", "round_s")
    )
    by_class = [
        {k: v for k, v in m.items() if k.startswith("energy_") and k != "energy_j"}
        for m in run.metrics
    ]
    return [
        {"energy_j": j, "seconds": s, "accuracy": m["accuracy"], **kinds}
        for j, s, m, kinds in zip(joules, seconds, run.metrics, by_class, strict=True)
    ]


def _spread(values: Sequence[float]) -> Spread:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Spread(fmean(values), error)
