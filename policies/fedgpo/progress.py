"""The progress of a round: the share by which it reduces the error."""

from __future__ import annotations

import math

from policies.fedgpo.federation import Round

LEAST_ERROR = 0.02
"""Added to every error: the reachable accuracy is unknown."""


def error(accuracy: float) -> float:
    """Return the share of wrong answers plus `LEAST_ERROR`."""
    return 1.0 - accuracy + LEAST_ERROR


def progress(one: Round) -> float:
    """Return the logarithm of the error before a round over that after it; negative where it rose.

    Trainings reduce their error by about the same share each round, so that early and late rounds
    are comparable.
    """
    return math.log(error(one.before) / error(one.accuracy))
