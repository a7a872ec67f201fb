"""The communication interval after SkewScout: average rarely while that costs no accuracy.

SkewScout (Hsieh et al., arXiv 1910.00189, section 7) sends models between partitions to measure how much
accuracy skewed data costs, and adapts how often they communicate. Here that loss is what clients gain on
their own samples in a round beyond what their average gains (`skew_loss`): training that the averaging
takes back. Steps by one rung instead of the paper's search, the tolerance and the rounds between two
steps are ours.
"""

from __future__ import annotations

import math
from statistics import fmean

from tuner.core import InvalidInput, Knob, Past, Role, Setting, Suggestion, TrialState, Try, Wait

LOSS = "skew_loss"
TOLERANCE = 0.05
"""A loss up to this calls for fewer averagings, more than twice as much for more of them."""
ROUNDS = 3
"""So many rounds at an interval are judged together."""


class AveragingInterval:
    """Averages every n local steps, n by what skewed data costs; other knobs keep their defaults."""

    heeds: frozenset[str] = frozenset()

    def suggest(self, past: Past) -> Suggestion:
        """Return the next round's setting; it never ends.

        Raises:
            InvalidInput: the space has no knob for the interval, or several.
        """
        knob = _interval(past)
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        if past.running:
            return Wait("the last round is still running")
        default = past.study.baseline
        steps, losses = _latest(past, knob)
        place = knob.values.index(steps)
        if len(losses) < ROUNDS:
            return _at(default, knob, place, "measured again")
        loss = fmean(losses[-ROUNDS:])
        if loss <= TOLERANCE and place + 1 < len(knob.values):
            return _at(
                default, knob, place + 1, f"skewed data costs {loss:.1%} only: averages less"
            )
        if loss > 2.0 * TOLERANCE and place > 0:
            return _at(
                default, knob, place - 1, f"skewed data costs {loss:.1%}: averages more often"
            )
        return _at(default, knob, place, f"skewed data costs {loss:.1%}")


def _interval(past: Past) -> Knob:
    knobs = [k for k in past.study.space.knobs if k.role is Role.AVERAGING_STEPS]
    if len(knobs) != 1:
        raise InvalidInput(
            f"it sets one knob of the role {Role.AVERAGING_STEPS}, and the space has {len(knobs)}",
            hint="choose another policy, or a federation whose clients train by steps",
        )
    return knobs[0]


def _latest(past: Past, knob: Knob) -> tuple[object, list[float]]:
    """Return the latest interval, and the losses of the rounds at it since it was last changed."""
    steps: object = knob.default
    losses: list[float] = []
    for trial in sorted(past.trials, key=lambda t: t.number):
        if trial.state is not TrialState.COMPLETED:
            continue
        if trial.setting[knob.name] != steps:
            steps, losses = trial.setting[knob.name], []
        loss = trial.shown.get(LOSS)
        if loss is not None and math.isfinite(loss.mean):
            losses.append(loss.mean)
    return steps, losses


def _at(default: Setting, knob: Knob, place: int, why: str) -> Try:
    value = knob.values[place]
    return Try({**default, knob.name: value}, f"{why}; every {value} steps")
