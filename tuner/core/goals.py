"""Objectives and constraints of the operator, and verdicts of the evidence on them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tuner.compat import StrEnum
from tuner.core.errors import ConstraintSyntax
from tuner.core.estimates import Estimate
from tuner.core.plans import ANYWHERE, Context
from tuner.core.quantities import (
    LARGEST,
    UNDECLARED,
    Better,
    Quantities,
    known_metrics,
    quantity_of,
    standard,
)
from tuner.errors import InvalidInput

_ShownT = TypeVar("_ShownT", float, Estimate)
_METRIC = r"[a-z][a-z0-9_.]*"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
_GRAMMAR = re.compile(
    rf"\s*(?P<metric>{_METRIC})\s*(?P<op><=|>=)\s*(?P<bound>{_NUMBER})\s*(?P<baseline>[x×*]\s*baseline)?\s*"
)
_GOALS: Mapping[str, str] = {
    "minimize": "minimize",
    "minimise": "minimize",
    "maximize": "maximize",
    "maximise": "maximize",
}
"""Each spelling of a goal, and the stored spelling."""
_BETTER: Mapping[Better, str] = {Better.LESS: "minimize", Better.MORE: "maximize"}
_EXAMPLES = 'write it like "latency_p99_ms <= 50" or "latency_p99_ms <= 1.2x baseline"'


class Verdict(StrEnum):
    """The conclusion of the evidence on a limit. Only feasible settings are ever held."""

    FEASIBLE = "feasible"
    UNSURE = "unsure"
    INFEASIBLE = "infeasible"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the least favourable of several verdicts, feasible for an empty series."""
    order = [Verdict.FEASIBLE, Verdict.UNSURE, Verdict.INFEASIBLE]
    return max(verdicts, key=order.index, default=Verdict.FEASIBLE)


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric to make as small (or as large) as the constraints allow."""

    metric: str
    goal: str = "minimize"

    @classmethod
    def parse(cls, text: str, declared: Quantities = UNDECLARED) -> Objective:
        """Read `energy_j`, `minimize energy_j` or `maximize throughput_per_s`, in either spelling.

        Raises:
            ConstraintSyntax: the text is anything else, gives no direction for a metric that declares
                none, or gives the worse direction for one that does.
        """
        direction, _, metric = text.strip().rpartition(" ")
        goal = _GOALS.get(direction.strip(), direction.strip())
        preferred = quantity_of(metric, declared).better
        better = _BETTER[preferred] if preferred is not None else ""
        objective = cls(metric, goal or better or "minimize")
        if not goal and not better:
            raise ConstraintSyntax(
                f"{metric} does not declare whether less or more is better",
                hint=f'write "minimize {metric}" or "maximize {metric}"; known metrics: {known_metrics()}',
            )
        if better and objective.goal != better:
            way = "less" if better == "minimize" else "more"
            raise ConstraintSyntax(
                f"cannot {objective.goal} {metric}: {way} of it is better",
                hint=f'write "{better} {metric}"; use a constraint to bound it',
            )
        return objective

    def __post_init__(self) -> None:
        if not re.fullmatch(_METRIC, self.metric):
            raise ConstraintSyntax(
                f"{self.metric!r} is not a metric name", hint='name one like "energy_j"'
            )
        if self.goal not in _BETTER.values():
            raise ConstraintSyntax(
                f"an objective cannot {self.goal!r}",
                hint=f'write "minimize {self.metric}" or "maximize {self.metric}"',
            )

    def __str__(self) -> str:
        return f"{self.goal} {self.metric}"

    @property
    def sign(self) -> float:
        """+1 if less is better, -1 if more is: `sign * value` is always minimised."""
        return 1.0 if self.goal == "minimize" else -1.0

    def score(self, shown: Mapping[str, _ShownT], context: Context = ANYWHERE) -> _ShownT | None:
        """Return the value to optimise from a window's estimates, or from true values; None if missing.

        The context does not matter to an objective of a single metric.
        """
        return shown.get(self.metric)

    def better(self, a: float, b: float) -> bool:
        """Return whether `a` is strictly better than `b`."""
        return self.sign * a < self.sign * b


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit on a metric, absolute or as a multiple of the baseline's mean.

    `str()` of a constraint parses back to the same constraint.
    """

    metric: str
    op: str
    bound: float
    relative: bool = False

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read `metric <= number` or `metric <= number x baseline` (likewise `>=`).

        Raises:
            ConstraintSyntax: the text is anything else, or the limit is one that no value of the metric
                could keep, or break.
        """
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            raise ConstraintSyntax(f"cannot read the constraint {text!r}", hint=_EXAMPLES)
        bound = float(match["bound"])
        if abs(bound) > LARGEST:
            raise ConstraintSyntax(
                f"the limit on {match['metric']} cannot be {match['bound']}: no value exceeds it",
                hint="leave the constraint out, or give a smaller number",
            )
        return cls(match["metric"], match["op"], bound, match["baseline"] is not None)

    def __post_init__(self) -> None:
        if not re.fullmatch(_METRIC, self.metric) or self.op not in ("<=", ">="):
            raise ConstraintSyntax(
                f"cannot read the constraint {self.metric!r} {self.op!r}", hint=_EXAMPLES
            )
        quantity = standard(self.metric)
        signed = not self.relative and (quantity is None or quantity.signed)
        if not math.isfinite(self.bound) or (self.bound <= 0.0 and not signed):
            raise ConstraintSyntax(
                f"the limit on {self.metric} cannot be {self.bound:g}"
                f"{' times the baseline' if self.relative else ''}",
                hint="give a positive number",
            )

    def __str__(self) -> str:
        return f"{self.metric} {self.op} {self.bound!r}{'x baseline' if self.relative else ''}"

    def limit(self, baseline: Mapping[str, Estimate]) -> float | None:
        """Return the limit in the metric's unit; None if it is relative to a missing baseline.

        Also None for a baseline of 0, because no multiple of 0 is a limit.
        """
        value, estimate = self.bound, baseline.get(self.metric)
        if self.relative:
            if estimate is None or estimate.mean == 0.0:
                return None
            value = self.multiple(estimate.mean) * estimate.mean
        return max(-LARGEST, min(value, LARGEST))  # the range of a limit in a message

    def multiple(self, baseline: float) -> float:
        """Return the factor for a baseline: the bound, or 2 minus the bound for a negative baseline.

        A bound of 1.05 means 5 % of the baseline's size above it, on either side of zero: -0.95 for a
        baseline of -1.
        """
        return self.bound if baseline >= 0.0 else 2.0 - self.bound


@dataclass(frozen=True, slots=True)
class Limit:
    """A constraint with its absolute value, so that a device needs no baseline to check it."""

    metric: str
    op: str
    value: float

    def __post_init__(self) -> None:
        if not re.fullmatch(_METRIC, self.metric) or self.op not in ("<=", ">="):
            raise ConstraintSyntax(
                f"cannot read the limit {self.metric!r} {self.op!r}", hint=_EXAMPLES
            )
        if not math.isfinite(self.value):
            raise ConstraintSyntax(f"the limit on {self.metric} cannot be {self.value}")

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read the text of a limit as written by `str()`. Raises ConstraintSyntax."""
        constraint = Constraint.parse(text)
        return cls(constraint.metric, constraint.op, constraint.bound)

    def __str__(self) -> str:
        return f"{self.metric} {self.op} {self.value!r}"

    @property
    def in_short(self) -> str:
        """The limit for a sentence, its value rounded to 4 digits."""
        return f"{self.metric} {self.op} {self.value:.4g}"

    def bounded(self, estimate: Estimate) -> Estimate:
        """Return the estimate of a window that this limit cut short: unbounded towards the worse side."""
        if self.op == "<=":
            return replace(estimate, high=math.inf)
        return replace(estimate, low=-math.inf)

    @property
    def sign(self) -> float:
        """+1 for an upper limit, -1 for a lower one: feasible is `sign * (x - value) <= 0`."""
        return 1.0 if self.op == "<=" else -1.0

    def holds(self, value: float) -> bool:
        """Return whether an exact value keeps the limit."""
        return self.sign * (value - self.value) <= 0.0

    def verdict(self, estimate: Estimate | None) -> Verdict:
        """Judge an estimate by its interval: feasible inside the limit, infeasible outside, else unsure."""
        if estimate is None:
            return Verdict.UNSURE
        inner, outer = (
            (estimate.high, estimate.low) if self.op == "<=" else (estimate.low, estimate.high)
        )
        if self.holds(inner):
            return Verdict.FEASIBLE
        return Verdict.UNSURE if self.holds(outer) else Verdict.INFEASIBLE


def refuse_contradiction(constraints: Sequence[Constraint]) -> None:
    """Check that no two constraints contradict each other.

    A relative and an absolute constraint are not compared: that would need a measured baseline.

    Raises:
        InvalidInput: no value of a metric keeps both of two constraints; the message names them.
    """
    for floor in (c for c in constraints if c.op == ">="):
        for cap in (c for c in constraints if c.op == "<="):
            alike = (cap.metric, cap.relative) == (floor.metric, floor.relative)
            if alike and floor.bound > cap.bound:
                raise InvalidInput(
                    f'no value keeps both "{floor}" and "{cap}"', hint="leave one of them out"
                )


def limits(
    constraints: Sequence[Constraint], baseline: Mapping[str, Estimate]
) -> tuple[Limit, ...] | None:
    """Return the limits in force; None while one is relative to a baseline not yet measured."""
    resolved: list[Limit] = []
    for constraint in constraints:
        value = constraint.limit(baseline)
        if value is None:
            return None
        resolved.append(Limit(constraint.metric, constraint.op, value))
    return tuple(resolved)


def judge(estimates: Mapping[str, Estimate], in_force: Sequence[Limit]) -> Verdict:
    """Return the least favourable verdict over all limits."""
    return worst(limit.verdict(estimates.get(limit.metric)) for limit in in_force)
