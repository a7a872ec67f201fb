"""The rivals of the learners: always the same setting, random settings, and plain BO."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

from policies.fedgpo.bandit import Bandit
from policies.fedgpo.federation import Federation, Round
from policies.fedgpo.goals import SPENT, TrainingGoal
from policies.fedgpo.rounds import RoundPolicy
from tests.bench.rivals.observed import Observed, ObservedSetting
from tuner.core import Past, SettingKey, Try, setting_key

LEAST_ERROR = 0.02
"""Added to every error: the reachable accuracy is unknown."""
SEARCHED_ROUNDS = 30
"""The number of rounds in which plain BO searches; then it keeps the best setting."""


class FixedRounds(RoundPolicy):
    """Runs every round at the baseline: a study's defaults."""

    spends: ClassVar[tuple[str, ...]] = SPENT

    def round(
        self, past: Past, federation: Federation, learnt: Sequence[Round], goal: TrainingGoal
    ) -> Try:
        """Return the baseline."""
        return Try(federation.default, "the same setting every round")


class RandomRounds(RoundPolicy):
    """Runs every round at a random setting."""

    spends: ClassVar[tuple[str, ...]] = SPENT

    def round(
        self, past: Past, federation: Federation, learnt: Sequence[Round], goal: TrainingGoal
    ) -> Try:
        """Return a setting drawn by seed and round."""
        dice = random.Random(f"{past.study.seed} {_next(past)}")
        drawn = {knob.name: dice.choice(knob.values) for knob in federation.knobs}
        return Try({**federation.default, **drawn}, "drawn at random")


class SearchedRounds(RoundPolicy):
    """Searches the setting with the most progress per cost by plain BO, then keeps it.

    It ignores the federation's state, and that a round depends on the rounds before.
    """

    spends: ClassVar[tuple[str, ...]] = SPENT

    def round(
        self, past: Past, federation: Federation, learnt: Sequence[Round], goal: TrainingGoal
    ) -> Try:
        """Return the next setting of the search, or the best."""
        if not learnt:
            return Try(federation.default, "nothing has been learnt yet")
        seen = _seen(learnt)
        tried = frozenset(setting_key(t.setting) for t in past.trials)
        if len(learnt) >= SEARCHED_ROUNDS or len(tried) >= past.study.space.size:
            best = min(seen.values(), key=lambda one: one.loss)
            return Try(best.setting, "the best of what was searched")
        from tests.bench.rivals.plain import choose  # torch comes with the first suggestion only

        return Try(*choose(Observed(past.study.space, seen, tried, len(seen)), past.study.seed))


def _seen(learnt: Sequence[Round]) -> dict[SettingKey, ObservedSetting]:
    by_setting: dict[SettingKey, list[Round]] = {}
    for one in learnt:
        by_setting.setdefault(setting_key(one.setting), []).append(one)
    return {
        key: ObservedSetting(of[0].setting, -fmean(_progress(one) / one.spent for one in of), ())
        for key, of in by_setting.items()
    }


def _progress(one: Round) -> float:
    """Return the logarithm of the error before a round over that after it."""
    return math.log((1.0 - one.before + LEAST_ERROR) / (1.0 - one.accuracy + LEAST_ERROR))


def _next(past: Past) -> int:
    return max((t.number for t in past.trials), default=0) + 1


class AlikeRounds(Bandit):
    """Ours with the same settings for all classes."""

    differ = math.inf
