"""Policies against the fixed settings: to the same accuracy, over seeds, for joules, seconds and grams."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

from tests.bench.federated.judge import MISSED, Judged, best_of, cost, judged
from tests.bench.federated.play import Played, play, play_fixed
from tests.bench.federated.setups import FederationSetup, Fixed

OURS, PAPERS, ALIKE = "fedgpo", "fedgpo-qlearning", "fedgpo-alike"
OBJECTIVES = ("energy_j", "round_s", "carbon_g")
RIVALS = ("fedgpo-bo", "fedgpo-random")
REACHED = 0.95
"""The target, as a share of the best accuracy of any fixed setting with the first seed."""
NEAR = 1.5
"""Fixed settings that cost more than the best × this with the first seed are not run with others."""


@dataclass(frozen=True)
class Forecast:
    """The chance that the policy gave at half of the rounds, and whether the target was reached.

    `hopeless` is the round at which the policy first said that it cannot be reached.
    """

    chance: float | None
    hopeless: int | None
    reached: bool


@dataclass(frozen=True)
class FederationComparison:
    """Ours against the best fixed setting in hindsight on one federation, by objective.

    Grams are an objective of their own where classes differ in the carbon intensity; elsewhere they
    are the joules times a constant.
    """

    title: str
    judges: bool
    unlike: bool
    steps: bool
    target: float
    judged: tuple[Judged, ...]
    forecasts: tuple[Forecast, ...]
    rivals: Mapping[str, float]
    curves: Mapping[str, Sequence[Mapping[str, float]]]
    settings: Sequence[Mapping[str, float]]
    decision_ms: float


class Bench:
    """Runs trainings in parallel; those at fixed settings are cached in a folder."""

    def __init__(
        self, cache: Path, workers: int, seeds: int, report: Callable[[str], None]
    ) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self._cache, self._told, self._seeds = cache, report, tuple(range(seeds))
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def fixed(self, federation: FederationSetup) -> tuple[float, list[Fixed], list[list[Played]]]:
        """Return the target, the fixed settings that may be best, and their trainings by seed.

        All of them are run whole with the first seed; those within `NEAR` of the best or of the
        fewest rounds with the others, too.
        """
        first = self._run([(federation, s, 0, self._cache, 1.0) for s in federation.grid])
        target = REACHED * max(run.final_accuracy for run in first)
        near: set[int] = set()
        for costs in (
            *([cost(r, metric, target) for r in first] for metric in OBJECTIVES),
            [float(r.rounds_to(target) or MISSED * federation.rounds) for r in first],
        ):
            near |= {i for i, one in enumerate(costs) if one <= NEAR * min(costs)}
        grid = [federation.grid[i] for i in sorted(near)]
        jobs = [(federation, s, seed, self._cache, target) for s in grid for seed in self._seeds]
        runs = self._run(jobs)
        count = len(self._seeds)
        return target, grid, [runs[i : i + count] for i in range(0, len(runs), count)]

    def _run(self, jobs: Sequence[tuple[FederationSetup, Fixed, int, Path, float]]) -> list[Played]:
        return list(self._pool.map(_kept, *zip(*jobs, strict=True)))

    def played(
        self, federation: FederationSetup, name: str, target: float, objective: str
    ) -> list[Played]:
        """Return the trainings to a target under a policy, one per seed."""
        jobs = [(federation, name, seed, target, objective) for seed in self._seeds]
        return list(self._pool.map(play, *zip(*jobs, strict=True)))

    def compare(
        self, title: str, federation: FederationSetup, rivals: Sequence[str] = ()
    ) -> FederationComparison:
        """Return the comparison of the policies and the fixed settings on one federation."""
        target, grid, fixed = self.fixed(federation)
        judgements, forecasts, mine = [], list[Forecast](), list[Played]()
        for metric in OBJECTIVES if federation.g_per_kwh else OBJECTIVES[:2]:
            arms = [OURS, PAPERS, *([ALIKE] if federation.unlike and metric == "round_s" else [])]
            played = [self.played(federation, name, target, metric) for name in arms]
            judgements.append(judged(metric, target, federation.rounds, grid, fixed, *played))
            forecasts += [_forecast(run, federation.rounds, target) for run in played[0]]
            mine = mine or played[0]
            self._told(f"{title}: {told(judgements[-1])}")
        place = best_of(fixed, target, OBJECTIVES[0])
        best = sum(cost(r, OBJECTIVES[0], target) for r in fixed[place])
        others = {name: self.played(federation, name, target, OBJECTIVES[0]) for name in rivals}
        return FederationComparison(
            title,
            federation.judges,
            federation.unlike,
            bool(federation.intervals),
            target,
            tuple(judgements),
            tuple(forecasts),
            {
                n: sum(cost(r, OBJECTIVES[0], target) for r in own) / best
                for n, own in others.items()
            },
            {"fedgpo": _curve(mine[0]), "best fixed setting": _curve(fixed[place][0])},
            [{k: float(str(v)) for k, v in s.items()} for s in mine[0].settings],
            max(run.decision_ms for run in mine),
        )


def told(one: Judged) -> str:
    """Return a judgement as one line of text."""
    seeds = " ".join(f"{ratio:.2f}" for ratio in one.by_seed)
    alike = "" if one.alike is None else f", {one.alike:.2f} × alike"
    return (
        f"{one.objective} {one.ratio:.2f} × the best fixed ({seeds}; {list(one.best_fixed.values())})"
        f"{alike}, missed {list(one.missed)} and late {list(one.missed_late)} of {one.possible}; "
        f"Q-learning {one.paper_ratio:.1f}"
    )


def _forecast(run: Played, rounds: int, target: float) -> Forecast:
    """Return the forecast at half of the rounds; none where the target was reached before."""
    half = run.chances[rounds // 2] if len(run.chances) > rounds // 2 else None
    return Forecast(half, run.hopeless, run.rounds_to(target) is not None)


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
