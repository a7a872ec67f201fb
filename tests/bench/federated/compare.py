"""Policies against the fixed settings: to the same accuracy, over seeds, and where it depends on what."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev

from agents.federated.fleet.devices import load_devices
from agents.federated.fleet.rounds import BATCHES, EPOCHS, FLOWER, PARTICIPANTS
from tests.bench.federated.play import FederationSetup, Played, play, play_fixed

POLICIES = ("fedgpo", "fedgpo-qlearning", "fedgpo-bo", "fedgpo-random")
OTHER_GOALS = {
    "fedgpo, for time": ("fedgpo", "round_s"),
    "fedgpo, for carbon": ("fedgpo", "carbon_g"),
}
"""Arms with another objective than energy."""
FASTEST = "fastest fixed setting"
SEEDS, OTHER_SEEDS = (0, 1, 2, 3, 4), (100, 101, 102)
"""Those that are judged, and those that the best fixed setting and the target are found on."""
REACHED = 0.95
"""The target, as a share of the best accuracy that any fixed setting came to."""
ROUNDS = {"digits": 150, "made": 100}
Fixed = Mapping[str, int]
GRID: tuple[Fixed, ...] = tuple(
    {"participants": k, "batch_size": b, "local_epochs": e}
    for k, b, e in itertools.product(PARTICIPANTS, BATCHES, EPOCHS)
)
SPENT = ("energy_j", "round_s")


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean, and the standard error of it."""

    mean: float
    stderr: float


@dataclass(frozen=True)
class Arm:
    """What one way to set rounds came to: joules, seconds and rounds to the target, over seeds.

    `reached` is in how many seeds the target was reached; where it was not, all rounds count, so that
    the true cost is higher. `saving` is the defaults' joules over its own, `faster` their seconds.
    """

    name: str
    energy_j: Spread
    seconds: Spread
    rounds: Spread
    saving: Spread
    faster: Spread
    final_accuracy: Spread
    reached: int
    decision_ms: float


@dataclass(frozen=True)
class FederationComparison:
    """All arms on one federation."""

    title: str
    target: float
    best_fixed: Fixed
    arms: tuple[Arm, ...]
    curves: Mapping[str, Sequence[Mapping[str, float]]]
    settings: Sequence[Mapping[str, float]]


def federations() -> dict[str, FederationSetup]:
    """Return the federations that are compared on: two tasks, alike and unlike data, and the controls."""
    devices = load_devices()
    found = {
        f"{task}, {'IID' if alpha is None else f'α = {alpha:g}'}": FederationSetup(
            task, alpha, devices, rounds
        )
        for task, rounds in ROUNDS.items()
        for alpha in (None, 0.1)
    }
    digits = found["digits, α = 0.1"]
    for part, factor in itertools.product(("radio", "idle"), (0.5, 1.5)):
        scaled = devices.scaled(**{part: factor})
        found[f"digits, α = 0.1, {part} power × {factor:g}"] = replace(digits, devices=scaled)
    alike = replace(digits, alpha=None, devices=devices.alike())
    return found | {"digits, all clients alike": alike}


class Bench:
    """Runs trainings, side by side on all cores; those at fixed settings are kept in a folder."""

    def __init__(self, cache: Path, workers: int, report: Callable[[str], None]) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self._cache, self._workers, self._told = cache, workers, report

    def compare(self, title: str, federation: FederationSetup) -> FederationComparison:
        """Return how the policies and the fixed settings do on one federation."""
        with ProcessPoolExecutor(self._workers, mp_context=get_context("spawn")) as pool:
            jobs = [(federation, setting, seed) for setting in GRID for seed in OTHER_SEEDS]
            found = list(pool.map(_kept, *zip(*jobs, strict=True), itertools.repeat(self._cache)))
            by_setting = [
                found[i : i + len(OTHER_SEEDS)] for i in range(0, len(found), len(OTHER_SEEDS))
            ]
            target = REACHED * max(fmean(r.final_accuracy for r in runs) for runs in by_setting)
            cost = [_total_cost(runs, target) for runs in by_setting]
            best = GRID[min(range(len(GRID)), key=cost.__getitem__)]
            times = [_total_cost(runs, target, "round_s") for runs in by_setting]
            fastest = GRID[min(range(len(GRID)), key=times.__getitem__)]
            self._told(f"{title}: target {target:.3f}, best fixed {dict(best)}")
            runs = {
                "Flower's defaults": self._fixed(pool, federation, FLOWER),
                "best fixed setting": self._fixed(pool, federation, best),
                FASTEST: self._fixed(pool, federation, fastest),
            }
            arms = {**{name: (name, "energy_j") for name in POLICIES}, **OTHER_GOALS}
            for policy, (name, objective) in arms.items():
                count = len(SEEDS)
                runs[policy] = list(
                    pool.map(
                        play,
                        [federation] * count,
                        [name] * count,
                        SEEDS,
                        [target] * count,
                        [objective] * count,
                    )
                )
                self._told(f"{title}: {policy} done")
        return _compared(title, target, best, runs)

    def _fixed(
        self, pool: ProcessPoolExecutor, federation: FederationSetup, setting: Fixed
    ) -> list[Played]:
        seeds = len(SEEDS)
        return list(
            pool.map(_kept, [federation] * seeds, [setting] * seeds, SEEDS, [self._cache] * seeds)
        )


def _total_cost(runs: Sequence[Played], target: float, metric: str = "energy_j") -> float:
    """Return what the target takes of a metric; infinite where it was not always reached."""
    if any(run.rounds_to(target) is None for run in runs):
        return math.inf
    return math.fsum(run.spent(metric, target) for run in runs)


def _kept(federation: FederationSetup, setting: Fixed, seed: int, cache: Path) -> Played:
    """Return a training at a fixed setting: from the folder where it was run before."""
    key = json.dumps([asdict(federation), dict(setting), seed], sort_keys=True, default=str)
    file = cache / f"{sha256(key.encode()).hexdigest()[:24]}.json"
    if file.is_file():
        kept = json.loads(file.read_text(encoding="utf-8"))
        return Played(tuple(kept["settings"]), tuple(kept["metrics"]), 0.0)
    played = play_fixed(federation, setting, seed)
    text = json.dumps({"settings": [*played.settings], "metrics": [*played.metrics]})
    draft = file.with_suffix(f".{seed}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
    return played


def _compared(
    title: str, target: float, best: Fixed, runs: Mapping[str, Sequence[Played]]
) -> FederationComparison:
    defaults = runs["Flower's defaults"]
    arms = tuple(_arm(name, own, defaults, target) for name, own in runs.items())
    curves = {name: _curve(own[0]) for name, own in runs.items()}
    ours = runs["fedgpo"][0]
    settings = [{k: float(str(v)) for k, v in s.items()} for s in ours.settings]
    return FederationComparison(title, target, best, arms, curves, settings)


def _arm(name: str, runs: Sequence[Played], defaults: Sequence[Played], target: float) -> Arm:
    joules, seconds = ([r.spent(metric, target) for r in runs] for metric in SPENT)
    usual = [[r.spent(metric, target) for r in defaults] for metric in SPENT]
    counts = [float(r.rounds_to(target) or len(r.metrics)) for r in runs]
    return Arm(
        name,
        _spread(joules),
        _spread(seconds),
        _spread(counts),
        _spread([a / b for a, b in zip(usual[0], joules, strict=True)]),
        _spread([a / b for a, b in zip(usual[1], seconds, strict=True)]),
        _spread([r.final_accuracy for r in runs]),
        sum(r.rounds_to(target) is not None for r in runs),
        fmean(r.decision_ms for r in runs),
    )


def _curve(run: Played) -> list[dict[str, float]]:
    """Return a training's accuracy over the joules and seconds spent, and its joules by class."""
    joules, seconds = (list(itertools.accumulate(m[s] for m in run.metrics)) for s in SPENT)
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
