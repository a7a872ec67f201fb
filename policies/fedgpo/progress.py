"""How far a round brings a training: by what share it lessens the error."""

from __future__ import annotations

import math

from policies.fedgpo.federation import Round

LEAST_ERROR = 0.02
"""Added to every error: the reachable accuracy is unknown."""


def error(accuracy: float) -> float:
    """Return the share of wrong answers, and a little."""
    return 1.0 - accuracy + LEAST_ERROR


def progress(one: Round) -> float:
    """Return the logarithm of the error before a round over that after it; negative where it rose.

    Trainings lessen their error by about the same share round by round, so that rounds early and
    late are alike in it.
    """
    return math.log(error(one.before) / error(one.accuracy))


def efficiency(one: Round) -> float:
    """Return the progress of a round over what it spent."""
    return progress(one) / one.spent
