"""Choose the setting that reaches the goal with a high enough chance at the least joules, seconds or grams.

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

from policies.fedgpo.costs import SECONDS, RoundCosts
from policies.fedgpo.curve import USUAL_LABELS, ErrorCurve
from policies.fedgpo.federation import (
    ACCURACY,
    ROUND,
    ROUNDS_LEFT,
    Federation,
    Round,
    begins,
    ran,
    state_now,
)
from policies.fedgpo.fitting import Array
from policies.fedgpo.goals import LIMITED, SPENT, TrainingGoal
from policies.fedgpo.rounds import RoundPolicy
from tuner.core import Context, Limit, Past, Phase, Prediction, Setting, TrialState, Try, Verdict

MOST_ROUNDS = 150
"""Number of latest rounds to learn from: older ones hardly predict the present progress."""
EXPLORATION = 0.15
"""The factor on the deviation of the drawn weights: a training ends after some dozens of rounds.
Our choice."""
TRIES = 3
"""The number of failed rounds after which a rung of the ladder is given up."""
DRAWS = 64
"""The number of draws for the error of a prediction, and for a chance."""
MARGIN = 0.1
"""The margin to a limit, in the logarithm."""
ENOUGH, NEARLY, FIRST, SPARE, HEEDED = 0.8, 0.15, 0.15, 2.0, 0.25
"""A setting is good enough in two cases. It reaches the goal with the chance `ENOUGH` if it runs for the
share `FIRST` of the rounds left and the fastest setting afterwards. Or its own chance is at most the
share `NEARLY` below the largest one. Among good enough settings the price decides, among others the
speed. `SPARE` rounds are left to the end. Chances count after the share `HEEDED` of all rounds. The
values were chosen on the recipes of the benchmark that do not judge."""
WIDE, NEAR = 2.0, 0.02
"""A goal cannot be reached if no draw of the weights, with deviations times `WIDE`, comes within
`NEAR` of it."""
LABELS = "data_classes"
USUAL = (20.0, 32.0, 1.0)
BATCH_POWER, LOCAL_POWER = -0.4, 0.45
"""Progress grows by about these powers of B and E, which also weigh the means over unlike classes."""


class Bandit(RoundPolicy):
    """Picks the setting with the least expected cost of the goal, by Thompson sampling."""

    spends: ClassVar[tuple[str, ...]] = SPENT
    limits: ClassVar[tuple[str, ...]] = LIMITED
    differ: ClassVar[float] = 1.5
    """If the objective is seconds, and a participant's seconds differ between classes by more than this
    factor, each class gets its own setting. For joules and grams that did not pay."""

    def round(
        self, past: Past, federation: Federation, learnt: Sequence[Round], goal: TrainingGoal
    ) -> Try:
        """Return the next round's setting, with its predicted spending."""
        number = max((t.number for t in past.trials), default=0) + 1
        rng = np.random.default_rng([past.study.seed, number])
        history = ran(past, federation)
        outlook = _Outlook(federation, history[-MOST_ROUNDS:], goal, past, rng)
        options = outlook.rung(federation.options(outlook.available))
        best = outlook.best(options)
        if outlook.metric == SECONDS and outlook.difference(best) > self.differ:
            for kind in federation.classes:
                best = outlook.best(federation.variants(best, kind))
        spread, predicted = outlook.expected(best, rng)
        why = _why(history, goal, past.study.objective.metric, spread)
        return Try(best, why + outlook.forecast(best, options, rng), predicted)


class _Outlook:
    """The predictions for the coming rounds from those so far."""

    def __init__(
        self,
        federation: Federation,
        learnt: Sequence[Round],
        goal: TrainingGoal,
        past: Past,
        rng: np.random.Generator,
    ) -> None:
        self.federation, self.learnt, self.goal, self.past = federation, learnt, goal, past
        self.available = federation.available(learnt)
        self.metric = past.study.objective.metric
        self._names = tuple(c.name for c in federation.classes)
        self._shares = self._shares_of(learnt)
        self._now = now = state_now(past, learnt)
        self._left = now.get(ROUNDS_LEFT, math.inf)
        self._done = now.get(ROUND, len(past.trials) + 1.0) - 1.0
        done = self._works([r.setting for r in learnt], learnt)
        self.costs = RoundCosts.of(learnt, self._names, done)
        self.curve = ErrorCurve.of(learnt, _logs(done), goal.accuracy, _labels(now))
        self._drawn = self._curves(rng, EXPLORATION, 1)
        self._draws = self._curves(rng, 1.0, DRAWS)

    def best(self, options: Sequence[Setting]) -> Setting:
        """Return the cheapest option with a high enough chance to reach the goal, else the fastest."""
        works = self._works(options)
        worths = self._worth(works, self.costs.weights.mean[None, :], self._drawn)[0]
        over = self._over(works) + _proven(self.past, self.goal.limits, options)
        counts = self._counts(works, self._draws)
        chances = self._in_time(counts)
        short = np.zeros(len(options), dtype=bool)
        if self.goal.accuracy is not None and self._done >= HEEDED * (self._left + self._done):
            short = self._in_time(self._then_fastest(counts)) < ENOUGH
            short &= (chances < (1.0 - NEARLY) * chances.max()) | (chances == 0.0)
            worths = np.where(short, np.log(counts).mean(axis=0), worths)
        place = min(range(len(options)), key=lambda i: (over[i], short[i], worths[i]))
        return options[place]

    def rung(self, options: Sequence[Setting]) -> Sequence[Setting]:
        """Return the options with the steps of the first open rung of the ladder; all if none is open.

        A rung is open until a round with its steps has completed or `TRIES` have failed, and while no
        limit is proven to be broken by all its options.
        """
        knob = self.federation.local[0].name
        tuned = [t for t in self.past.trials if t.phase is Phase.TUNING]
        for steps in self.federation.ladder():
            states = [t.state for t in tuned if t.setting[knob] == steps]
            there = [s for s in options if s[knob] == steps]
            over = TrialState.COMPLETED in states or len(states) >= TRIES
            if not over and not _proven(self.past, self.goal.limits, there).all():
                return there
        return options

    def forecast(
        self, setting: Setting, options: Sequence[Setting], rng: np.random.Generator
    ) -> str:
        """Return the chance to reach the goal in time in words, or that no option can reach it."""
        if self.goal.accuracy is None or not math.isfinite(self._left) or not self.learnt:
            return ""
        if self._done >= self._left:
            wide = self._curves(rng, WIDE, DRAWS)
            low = self.goal.accuracy - NEAR
            counts = self.curve.rounds_to(*wide, low, _logs(self._works(options)))
            if counts.min() > self._left:
                return f"; accuracy {self.goal.accuracy:g} cannot be reached in {self._left:.0f} rounds"
        chance = self._in_time(self._counts(self._works([setting]), self._draws))[0]
        return f"; a chance of {chance:.2f} in {self._left:.0f} rounds"

    def _in_time(self, counts: Array) -> Array:
        """Return the share of draws that reach the goal in the rounds left, for each work."""
        return np.asarray((counts + SPARE <= self._left).mean(axis=0))

    def _then_fastest(self, counts: Array) -> Array:
        """Return the rounds to the goal: `FIRST` of those left by each work, then by the fastest."""
        fastest = counts[:, [int(np.log(counts).mean(axis=0).argmin())]]
        ahead = FIRST * self._left
        return np.minimum(counts, ahead + np.maximum(0.0, 1.0 - ahead / counts) * fastest)

    def difference(self, setting: Setting) -> float:
        """Return the largest ratio of two classes' seconds of a participant in a round."""
        if len(self._names) < 2 or not self.learnt:
            return 1.0
        return self.costs.difference(self._works([setting])[0])

    def expected(
        self, setting: Setting, rng: np.random.Generator
    ) -> tuple[Array, dict[str, Prediction]]:
        """Return draws of the logarithm of the cost to the goal, and the spending of a round."""
        works = self._works([setting])
        costs = self.costs.weights.drawn(rng, 1.0, DRAWS)
        spread = self._worth(works, costs, self._curves(rng, 1.0, DRAWS))[:, 0]
        reported = [name for name in SPENT if any(name in r.shown for r in self.learnt)]
        drawn = {name: self.costs.metric(name, costs, works)[:, 0] for name in reported}
        return spread, {
            name: Prediction(float(draws.mean()), float(draws.std()), lognormal=True)
            for name, draws in drawn.items()
        }

    def _works(self, settings: Sequence[Setting], done: Sequence[Round] = ()) -> Array:
        """Return the work of rounds: for each class its participants, batch size and local work."""
        federation = self.federation
        works = np.empty((len(settings), len(self._names), 3))
        for i, setting in enumerate(settings):
            requested = float(setting[federation.participants.name])
            count = max(1.0, min(requested, self.available))
            shares = self._shares
            if done:
                count = max(1.0, done[i].shown.get("participated") or count)
                shares = self._shares_of(done[i : i + 1], self._shares)
            works[i, :, 0] = count * shares
            works[i, :, 1] = [float(setting[c.batch.name]) for c in federation.classes]
            works[i, :, 2] = [float(setting[k.name]) for k in federation.local]
        return works

    def _shares_of(self, rounds: Sequence[Round], usual: Array | None = None) -> Array:
        """Return each class's share of the participants of some rounds; alike where not reported."""
        counts = np.array(
            [[r.shown.get(f"participated_{c}", 0.0) for c in self._names] for r in rounds]
        )
        total = counts.sum() if len(rounds) else 0.0
        if total <= 0.0:
            return np.full(len(self._names), 1.0 / len(self._names)) if usual is None else usual
        return np.asarray(counts.sum(axis=0) / total)

    def _curves(self, rng: np.random.Generator, doubt: float, count: int) -> tuple[Array, Array]:
        """Return draws of the curve's weights, and the error now under each."""
        weights = self.curve.weights.drawn(rng, doubt, count)
        now = self._now.get(ACCURACY)
        if now is not None and self.learnt and begins(now, self.learnt[-1].accuracy):
            return weights, np.full(count, 1.0 - now)
        return weights, self.curve.course(weights)[1]

    def _worth(self, works: Array, costs: Array, curves: tuple[Array, Array]) -> Array:
        """Return the logarithm of the cost to reach the goal from here with each work."""
        spent = self.costs.metric(self.metric, costs, works)
        return np.asarray(np.log(spent * self._counts(works, curves)))

    def _counts(self, works: Array, curves: tuple[Array, Array]) -> Array:
        """Return the rounds to the goal from here: a row for each curve, a column for each work."""
        return self.curve.rounds_to(*curves, self.goal.accuracy, _logs(works))

    def _over(self, works: Array) -> Array:
        """Return the expected excess of each work over the limits, in the logarithm."""
        penalty = np.zeros(len(works))
        for limit in self.goal.limits:
            expected = self.costs.metric(limit.metric, self.costs.weights.mean[None, :], works)[0]
            room = math.log(max(1e-12, limit.value)) - MARGIN - np.log(expected)
            penalty += np.round(np.maximum(0.0, -room), 2)
        return penalty


def _labels(now: Context) -> float:
    """Return the share of all labels that a client holds, as the mean over the reported classes."""
    shares = [v for name, v in now.items() if name.partition(".")[0] == LABELS and 0.0 <= v <= 1.0]
    return fmean(shares) if shares else USUAL_LABELS


def _logs(works: Array) -> Array:
    """Return the logarithms of each round's work over the usual one, with all classes taken as one.

    The common batch size and local work are those that give the mean progress of the participants.
    """
    count = works[:, :, 0].sum(axis=1)
    shares = works[:, :, 0] / count[:, None]
    means = [
        (shares * works[:, :, i] ** power).sum(axis=1) ** (1.0 / power)
        for i, power in ((1, BATCH_POWER), (2, LOCAL_POWER))
    ]
    return np.asarray(np.log(np.column_stack([count, *means]) / np.array(USUAL)))


def _proven(past: Past, limits: Sequence[Limit], options: Sequence[Setting]) -> Array:
    """Return 100 for a setting whose rounds have proven that it breaks a limit of rounds."""
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
