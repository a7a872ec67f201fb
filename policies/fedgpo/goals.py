"""The goal and the limits of a study of a federation, and which of them a policy supports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from policies.fedgpo.costs import CARBON_G, COMPUTE_J, ENERGY_J, SECONDS, SENDING_J, WAITING_J
from policies.fedgpo.federation import ACCURACY, Federation, Round
from tuner.core import Constraint, InvalidInput, Limit, Mode, Past, Study

SPENT = (ENERGY_J, SECONDS, CARBON_G)
"""Objectives that a training can minimise."""
LIMITED = (*SPENT, COMPUTE_J, SENDING_J, WAITING_J)
"""Metrics of a round that can have a limit."""
SMOOTHED = 3
"""A goal is reached when the latest round and the mean of the last `SMOOTHED` rounds reach it.

One round alone is too noisy.
"""


@dataclass(frozen=True, slots=True)
class TrainingGoal:
    """The accuracy that ends a training, None for none, and the limits of each round."""

    accuracy: float | None
    limits: tuple[Limit, ...]

    @classmethod
    def of(cls, past: Past) -> TrainingGoal | None:
        """Return the goal of a study; None while a limit is relative to a baseline not yet measured."""
        limits = past.evidence.limits
        if limits is None:
            return None
        ends = [limit.value for limit in limits if limit.metric == ACCURACY]
        rest = tuple(limit for limit in limits if limit.metric != ACCURACY)
        return cls(max(ends, default=None), rest)

    def reached(self, learnt: Sequence[Round]) -> bool:
        """Return whether the training has reached its accuracy."""
        latest = [one.accuracy for one in learnt[-SMOOTHED:]]
        if self.accuracy is None or len(latest) < SMOOTHED:
            return False
        return min(fmean(latest), latest[-1]) >= self.accuracy


def refuse(study: Study, spent: Collection[str], limited: Collection[str]) -> None:
    """Check that a policy that minimises `spent` and limits `limited` supports a study.

    Raises:
        InvalidInput: the space is not that of a federation, or a part is not supported; the message
            names it.
    """
    Federation.of(study.space)
    if study.terms.mode is not Mode.CONTINUOUS:
        raise InvalidInput(
            f"the policy {study.policy} does not support the "
            f"mode {study.terms.mode}: it works round by round",
            hint=f"choose the mode {Mode.CONTINUOUS}",
        )
    objective = study.objective
    if objective.metric not in spent or objective.sign < 0.0:
        raise InvalidInput(
            f"the policy {study.policy} does not support the objective {objective}",
            hint=f"minimize one of {', '.join(spent)}; or choose another policy, like fedgpo",
        )
    for constraint in study.constraints:
        if not _supports(constraint, limited):
            limits = "".join(f', "{metric} <= …"' for metric in limited)
            raise InvalidInput(
                f'the policy {study.policy} does not support the constraint "{constraint}"',
                hint=f'use a goal like "{ACCURACY} >= 0.9"{limits}',
            )


def _supports(constraint: Constraint, limited: Collection[str]) -> bool:
    """Return whether a constraint is an absolute goal of accuracy, or an upper limit on such a metric."""
    if constraint.metric == ACCURACY:
        share = not constraint.relative and 0.0 < constraint.bound <= 1.0
        return constraint.op == ">=" and share
    return constraint.op == "<=" and constraint.metric in limited
