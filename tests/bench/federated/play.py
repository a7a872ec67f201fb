"""One training under one policy: the study, its rounds as trials, and the cost to the target."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

from jouletune_bench.fleet.rounds import FederatedTraining, RoundResult
from policies.fedgpo.federation import ROUNDS_LEFT
from tests.bench.federated.setups import FederationSetup
from tests.bench.rivals import load_tuner
from tuner.core import (
    JOULES_PER_KWH,
    Constraint,
    Done,
    Estimate,
    Load,
    Measurement,
    Mode,
    Objective,
    Origin,
    Past,
    Phase,
    Setting,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
    Try,
    TuningError,
)

START = datetime(2000, 1, 1, tzinfo=UTC)
CHANCE, HOPELESS = re.compile(r"a chance of (\d\.\d+) in"), "cannot be reached"
SMOOTHED = 3
"""An accuracy is reached once the mean of this many rounds has it, because single rounds are noisy."""


@dataclass(frozen=True)
class Played:
    """A training's rounds: the setting and metrics of each, and the median milliseconds of a decision.

    `whys` are the policy's reasons.
    """

    settings: tuple[Setting, ...]
    metrics: tuple[Mapping[str, float], ...]
    decision_ms: float
    whys: tuple[str, ...] = ()

    @property
    def chances(self) -> list[float | None]:
        """The chance to reach the goal in time as the policy gave it at each round."""
        found = [CHANCE.search(why) for why in self.whys]
        return [
            float(one[1]) if one else 0.0 if HOPELESS in why else None
            for one, why in zip(found, self.whys, strict=True)
        ]

    @property
    def hopeless(self) -> int | None:
        """The first round at which the policy said that the goal cannot be reached."""
        return next((i for i, why in enumerate(self.whys, start=1) if HOPELESS in why), None)

    @property
    def final_accuracy(self) -> float:
        """The accuracy at the end: the mean of the last rounds."""
        return fmean(m["accuracy"] for m in self.metrics[-SMOOTHED:])

    def rounds_to(self, accuracy: float) -> int | None:
        """Return the number of rounds to an accuracy; None if it is never reached."""
        accuracies = [m["accuracy"] for m in self.metrics]
        for end in range(SMOOTHED, len(accuracies) + 1):
            if fmean(accuracies[end - SMOOTHED : end]) >= accuracy:
                return end
        return None

    def spent(self, metric: str, accuracy: float) -> float:
        """Return the sum of a metric until an accuracy is reached; over all rounds if it never is."""
        return math.fsum(m[metric] for m in self.metrics[: self.rounds_to(accuracy)])


def play(
    federation: FederationSetup, policy: str, seed: int, goal: float, objective: str = "energy_j"
) -> Played:
    """Train under a policy to an accuracy, minimising an objective.

    Raises:
        TuningError: the policy does not continue.
    """
    training, chosen = federation.training(seed), load_tuner(policy)
    study = _study(federation.space(training), policy, seed, goal, objective)
    trials: list[Trial] = []
    results: list[RoundResult] = []
    took: list[float] = []
    whys: list[str] = []
    for number in range(1, federation.rounds + 1):
        now = {**training.state(), ROUNDS_LEFT: float(federation.rounds - number + 1)}
        past = Past(study=study, trials=tuple(trials), context=now)
        began = time.perf_counter()
        answer = chosen.suggest(past)
        took.append(1000.0 * (time.perf_counter() - began))
        if isinstance(answer, Done):
            break
        if not isinstance(answer, Try):
            raise TuningError(f"{policy} does not go on: {answer.why}", hint="report this")
        whys.append(answer.why)
        results.append(_run(federation, training, answer.setting))
        trials.append(_trial(number, answer.setting, Phase.TUNING, results[-1]))
    middle = sorted(took)[len(took) // 2] if took else 0.0
    settings, metrics = (t.setting for t in trials), (dict(r.metrics) for r in results)
    return Played(tuple(settings), tuple(metrics), middle, tuple(whys))


def play_fixed(
    federation: FederationSetup, setting: Mapping[str, int], seed: int, goal: float = 1.0
) -> Played:
    """Train to an accuracy at one K, B and E for all: `participants`, `batch_size`, `local_epochs`."""
    training = federation.training(seed)
    same = spread(setting, training.space)
    by_class = {f"energy_{kind.name}_j" for kind in federation.devices.classes}
    kept = {"accuracy", "energy_j", "round_s", "carbon_g", *by_class}
    played = Played((), (), 0.0)
    while len(played.metrics) < federation.rounds and played.rounds_to(goal) is None:
        shown = _run(federation, training, same).metrics
        metrics = {name: value for name, value in shown.items() if name in kept}
        played = Played((*played.settings, same), (*played.metrics, metrics), 0.0)
    return played


def spread(setting: Mapping[str, int], space: Space) -> Setting:
    """Return the setting with one K, B and E for every class; other knobs keep their defaults."""
    settings = {
        knob.name: setting.get(knob.name.partition(".")[0], knob.default) for knob in space.knobs
    }
    space.check(settings)
    return settings


def _run(federation: FederationSetup, training: FederatedTraining, setting: Setting) -> RoundResult:
    """Run a round; its grams follow from the electricity of each class, if that is known."""
    result = training.run(setting)
    if not federation.g_per_kwh:
        return result
    grams = math.fsum(
        result.metrics[f"energy_{name}_j"] * intensity / JOULES_PER_KWH
        for name, intensity in federation.g_per_kwh.items()
    )
    return RoundResult(result.context, {**result.metrics, "carbon_g": grams})


def measurement(result: RoundResult, seconds: float) -> Measurement:
    """Return a round as a measurement; its joules are marked as modelled."""
    shown = {
        name: Estimate.of_mean(value, 0.0, origin=Origin.ESTIMATED)
        for name, value in result.metrics.items()
    }
    load = Load(int(result.metrics["participated"]))
    return Measurement(
        estimates=shown, started_at=START, seconds=seconds, load=load, context=result.context
    )


def _study(space: Space, policy: str, seed: int, goal: float, objective: str) -> Study:
    return Study(
        id="federation",
        devices=("federation",),
        workload="federated",
        space=space,
        objective=Objective(objective),
        constraints=(Constraint("accuracy", ">=", goal),),
        policy=policy,
        seed=seed,
        terms=Terms(mode=Mode.CONTINUOUS, allow_estimated=True),
        phase=Phase.TUNING,
        created_at=START,
    )


def _trial(number: int, setting: Setting, phase: Phase, result: RoundResult) -> Trial:
    return Trial(
        number=number,
        setting=setting,
        phase=phase,
        state=TrialState.COMPLETED,
        started_at=START,
        ended_at=START,
        measurement=measurement(result, result.metrics["round_s"]),
    )
