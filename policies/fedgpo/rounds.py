"""The common part of all policies of a federation: they run round by round until the goal is reached."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from policies.fedgpo import goals
from policies.fedgpo.costs import ENERGY_J
from policies.fedgpo.federation import ACCURACY, Federation, Round, of_this_training, ran
from policies.fedgpo.goals import TrainingGoal
from tuner.core import Done, Past, Plan, Study, Suggestion, Try, Wait


class RoundPolicy(ABC):
    """Suggests the next round's setting; done once the study's accuracy is reached.

    `spends` are the objectives that it supports, `limits` the metrics of a round that may have a
    limit.
    """

    heeds: frozenset[str] = frozenset({"objective", "constraints"})
    needs_baseline = False
    goals: frozenset[str] = frozenset({ACCURACY})
    spends: ClassVar[tuple[str, ...]] = (ENERGY_J,)
    limits: ClassVar[tuple[str, ...]] = ()

    def refuse(self, study: Study) -> None:
        """Check that all of a study is supported. Raises InvalidInput with the unsupported part."""
        goals.refuse(study, self.spends, self.limits)

    def suggest(self, past: Past) -> Suggestion:
        """Return the next round's setting, or that the goal is reached.

        Raises:
            InvalidInput: a part of the study is not supported.
        """
        self.refuse(past.study)
        federation = Federation.of(past.study.space)
        goal = TrainingGoal.of(past)
        if goal is None:
            return Wait("the baseline has not been measured yet")
        if past.running:
            return Wait("the last round is still running")
        history = ran(past, federation)
        learnt = [one for one in history if one.whole]
        if goal.reached([one for one in of_this_training(past, history) if one.whole]):
            held = Plan.single(learnt[-1].setting)
            return Done(held, f"{ACCURACY} {learnt[-1].accuracy:.4g}: the goal is reached")
        return self.round(past, federation, learnt, goal)

    @abstractmethod
    def round(
        self, past: Past, federation: Federation, learnt: Sequence[Round], goal: TrainingGoal
    ) -> Try:
        """Return the next round's setting."""
