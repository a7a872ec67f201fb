"""Choose the setting that should reach the goal from here with the least joules, seconds or grams.

The cost of a round is learned by its parts (`costs`), the number of rounds left by a saturating
curve of the error (`curve`). Exploration is Thompson sampling (Thompson 1933; Agrawal and Goyal
2013): the weights of the curve are drawn by seed and round. Any setting teaches the cost of a
round, so exploring for it does not pay. All of it is our own: the table of FedGPO's learner has
many cells, and a training few rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

import numpy as np

from policies.fedgpo.costs import RoundCosts, RoundWork
from policies.fedgpo.curve import USUAL_LABELS, ErrorCurve, LogWork
from policies.fedgpo.federation import ROUNDS_LEFT, Federation, Round, state_now
from policies.fedgpo.fitting import Array
from policies.fedgpo.goals import LIMITED, SPENT, TrainingGoal
from policies.fedgpo.rounds import RoundPolicy
from tuner.core import Context, Past, Prediction, Setting, Try, Verdict

MOST_ROUNDS = 150
"""Number of latest rounds to learn from: older ones hardly predict the present progress."""
EXPLORATION = 0.3
"""The factor on the deviation of the drawn weights: a training ends after some dozens of rounds.
Chosen on synthetic tasks that are not used in the evaluation."""
DRAWS = 64
"""The number of draws for the error of a prediction."""
MARGIN = 0.1
"""The margin to a limit, in the logarithm."""
LATE, DEARER, SPARE, HEEDED = 3.0, 0.35, 2.0, 0.25
"""The penalty of a setting that needs too many rounds. `LATE` is the weight of the logarithm of
its rounds over those left. `DEARER` is the largest excess (logarithm) of the goal's cost over
the cheapest setting's. `SPARE` is the number of spare rounds. `HEEDED` is the share of all
rounds after which the penalty starts. Chosen on synthetic tasks that are not used in the
evaluation."""
LABELS = "data_classes"
USUAL = RoundWork(20.0, 32.0, 1.0)


class Bandit(RoundPolicy):
    """Picks the setting with the least expected cost of the goal, by Thompson sampling."""

    spends: ClassVar[tuple[str, ...]] = SPENT
    limits: ClassVar[tuple[str, ...]] = LIMITED

    def round(
        self, past: Past, federation: Federation, learnt: Sequence[Round], goal: TrainingGoal
    ) -> Try:
        """Return the next round's setting, with its predicted spending."""
        number = max((t.number for t in past.trials), default=0) + 1
        now = state_now(past, learnt)
        outlook = _Outlook(federation, learnt[-MOST_ROUNDS:], goal.accuracy, now)
        metric = past.study.objective.metric
        rng = np.random.default_rng([past.study.seed, number])
        options = federation.options(outlook.available)
        works = [outlook.work(setting) for setting in options]
        curve = outlook.curve.weights.drawn(rng, EXPLORATION, 1)
        worths = outlook.worth(metric, works, outlook.costs.weights.mean[None, :], curve)[0]
        over = outlook.over(goal, works) + _proven(past, options)
        late = outlook.late(now.get(ROUNDS_LEFT, math.inf), works, rng)
        late[worths > np.min(worths[over == over.min()]) + DEARER] = math.inf
        place = min(range(len(options)), key=lambda i: (over[i], worths[i] + late[i]))
        costs, curves = (of.weights.drawn(rng, 1.0, DRAWS) for of in (outlook.costs, outlook.curve))
        spread = outlook.worth(metric, [works[place]], costs, curves)[:, 0]
        predicted = outlook.predicted(works[place], costs)
        return Try(options[place], _why(learnt, goal, metric, spread), predicted)


class _Outlook:
    """The predictions for the coming rounds from those so far."""

    def __init__(
        self, federation: Federation, learnt: Sequence[Round], goal: float | None, now: Context
    ) -> None:
        self.federation, self.learnt, self.goal = federation, learnt, goal
        self.available = federation.available(learnt)
        done = [self.work(r.setting, r.shown.get("participated")) for r in learnt]
        self.costs = RoundCosts.of(learnt, done)
        self.curve = ErrorCurve.of(learnt, [_logs(w) for w in done], goal, _labels(now))

    def work(self, setting: Setting, participated: float | None = None) -> RoundWork:
        """Return the work of clients under a setting: for several classes, the geometric mean."""
        federation = self.federation
        requested = float(setting[federation.participants.name])
        batches = [math.log(float(setting[c.batch.name])) for c in federation.classes]
        local = [math.log(float(setting[k.name])) for k in federation.local]
        return RoundWork(
            max(1.0, participated or min(requested, self.available)),
            math.exp(sum(batches) / len(batches)),
            math.exp(sum(local) / len(local)),
        )

    def worth(self, metric: str, works: Sequence[RoundWork], costs: Array, curves: Array) -> Array:
        """Return the logarithm of the cost to reach the goal from here at each of some settings."""
        spent = self.costs.metric(metric, costs, works)
        return np.asarray(np.log(spent * self._counts(works, curves)))

    def late(self, left: float, works: Sequence[RoundWork], rng: np.random.Generator) -> Array:
        """Return the penalty of each setting for needing more rounds to the goal than are left.

        Zero where there is no goal, and in the first part of a training: the curve is uncertain
        then.
        """
        done = len(self.learnt)
        if self.goal is None or not math.isfinite(left) or done < HEEDED * (left + done):
            return np.zeros(len(works))
        counts = self._counts(works, self.curve.weights.drawn(rng, 1.0, DRAWS)) + SPARE
        return np.asarray(LATE * np.log(np.maximum(1.0, counts / max(1.0, left))).mean(axis=0))

    def _counts(self, works: Sequence[RoundWork], curves: Array) -> Array:
        """Return the rounds to the goal from here: a row for each curve, a column for each setting."""
        _, error = self.curve.course(curves)
        return np.array([self.curve.rounds_to(curves, error, self.goal, _logs(w)) for w in works]).T

    def over(self, goal: TrainingGoal, works: Sequence[RoundWork]) -> Array:
        """Return the expected excess of each setting over the limits, in the logarithm."""
        penalty = np.zeros(len(works))
        for limit in goal.limits:
            expected = self.costs.metric(limit.metric, self.costs.weights.mean[None, :], works)[0]
            room = math.log(max(1e-12, limit.value)) - MARGIN - np.log(expected)
            penalty += np.round(np.maximum(0.0, -room), 2)
        return penalty

    def predicted(self, work: RoundWork, costs: Array) -> dict[str, Prediction]:
        """Return the predicted spending of a round, from some draws of its costs."""
        reported = [name for name in SPENT if any(name in r.shown for r in self.learnt)]
        drawn = {name: self.costs.metric(name, costs, [work])[:, 0] for name in reported}
        return {
            name: Prediction(float(draws.mean()), float(draws.std()), lognormal=True)
            for name, draws in drawn.items()
        }


def _labels(now: Context) -> float:
    """Return the share of all labels that a client holds, as the mean over the reported classes."""
    shares = [v for name, v in now.items() if name.partition(".")[0] == LABELS and 0.0 <= v <= 1.0]
    return fmean(shares) if shares else USUAL_LABELS


def _logs(work: RoundWork) -> LogWork:
    """Return the logarithms of a work over the usual one."""
    return LogWork(
        math.log(work.participants / USUAL.participants),
        math.log(work.batch / USUAL.batch),
        math.log(work.local / USUAL.local),
    )


def _proven(past: Past, options: Sequence[Setting]) -> Array:
    """Return 100 for a setting whose rounds have proven that it breaks a limit of rounds."""
    limits = [x for x in past.evidence.limits or () if x.metric in LIMITED]
    penalty = np.zeros(len(options))
    for i, setting in enumerate(options):
        candidate = past.evidence.of(setting) if limits else None
        broken = candidate and any(
            x.verdict(candidate.estimates.get(x.metric)) is Verdict.INFEASIBLE for x in limits
        )
        penalty[i] = 100.0 if broken else 0.0
    return penalty


def _why(learnt: Sequence[Round], goal: TrainingGoal, metric: str, logs: Array) -> str:
    """Return the reason for a setting: the predicted rest of the cost, or that there is no data yet."""
    if not learnt:
        return "no data yet: the setting that usually takes the least"
    least, most = (float(np.exp(np.quantile(logs, q))) for q in (0.1, 0.9))
    towards = "half of the error" if goal.accuracy is None else f"accuracy {goal.accuracy:g}"
    return (
        f"the least {metric} to {towards} learned from {len(learnt)} rounds: "
        f"{least:.3g} to {most:.3g} from here (80 % likely)"
    )
