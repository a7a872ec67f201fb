"""The kit's stand-in for `scipy.stats.qmc`: the policy `sobol` draws even points, here random ones."""

import random
from collections.abc import Sequence


class Sobol:
    """Points in the unit cube."""

    def __init__(self, d: int, *, scramble: bool, rng: int) -> None:
        self._d, self._random = d, random.Random(rng)

    def random(self, n: int) -> Sequence[Sequence[float]]:
        """Return the next points."""
        return [[self._random.random() for _ in range(self._d)] for _ in range(n)]
