"""What the learners are measured against: always the same setting, any setting, and plain BO."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

from policies.fedgpo.federation import Federation, Round, rounds
from policies.fedgpo.progress import efficiency
from tuner.bo.observed import Observed, ObservedSetting
from tuner.core import Past, SettingKey, Suggestion, Try, Wait, setting_key

SEARCHED_ROUNDS = 30
"""So many rounds plain BO searches; then it stays with the best."""


class FixedRounds:
    """Runs every round at the baseline: a study's defaults."""

    heeds: frozenset[str] = frozenset()

    def suggest(self, past: Past) -> Suggestion:
        """Return the baseline. Raises InvalidInput where the space is no federation's."""
        federation = Federation.of(past.study.space)
        return _busy(past) or Try(federation.default, "the same setting every round")


class RandomRounds:
    """Runs every round at any setting."""

    heeds: frozenset[str] = frozenset()

    def suggest(self, past: Past) -> Suggestion:
        """Return a setting drawn by seed and round. Raises InvalidInput where it is no federation's."""
        federation = Federation.of(past.study.space)
        dice = random.Random(f"{past.study.seed} {_next(past)}")
        drawn = {knob.name: dice.choice(knob.values) for knob in federation.knobs}
        return _busy(past) or Try({**federation.default, **drawn}, "drawn at random")


class SearchedRounds:
    """Searches the setting of the greatest progress per joule by plain Bayesian optimisation, then stays.

    As if rounds did not depend on what came before and the federation's state did not matter.
    """

    heeds: frozenset[str] = frozenset()

    def suggest(self, past: Past) -> Suggestion:
        """Return the next setting of the search, or the best. Raises InvalidInput as `FixedRounds`."""
        federation = Federation.of(past.study.space)
        learnt = rounds(past, federation)
        if (wait := _busy(past)) is not None:
            return wait
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
        key: ObservedSetting(of[0].setting, -fmean(map(efficiency, of)), ())
        for key, of in by_setting.items()
    }


def _busy(past: Past) -> Wait | None:
    if past.limits is None:
        return Wait("the baseline has not been measured yet")
    return Wait("the last round is still running") if past.running else None


def _next(past: Past) -> int:
    return max((t.number for t in past.trials), default=0) + 1
