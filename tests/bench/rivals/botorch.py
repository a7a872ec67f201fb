"""Plain BoTorch, as a user of BoTorch would write it in an afternoon, for comparison with ours.

Described in `tests.bench.rivals.plain`: no physics, no safety, no proof.
"""

from __future__ import annotations

from tests.bench.rivals.observed import Observed, observed
from tuner.core import Past, Suggestion, Try


class BotorchPlain:
    """Searches with BoTorch's constrained log-EI over Gaussian processes of inferred noise."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the setting of the greatest expected gain, or the best feasible one at the end."""
        from tests.bench.rivals.plain import choose  # torch comes with the first suggestion only

        sofar = observed(past)
        if not isinstance(sofar, Observed):
            return sofar
        if not sofar.seen:  # a metric without measurements: there is no data for its model
            first = sofar.some_untried(1, past.study.seed)[0]
            return Try(first, "nothing to compare with was measured yet; the first left")
        return Try(*choose(sofar, past.study.seed))
