"""A complete policy: saves energy while the grid's power is dirty, and not while it is clean.

It goes through the settings one by one. At the end its plan goes by a signal of its own, the share of
renewable power.
"""

from __future__ import annotations

import math

from tuner.bo.observed import Observed, observed
from tuner.core import Done, Past, Plan, Row, Suggestion, Try, setting_key

SIGNAL = "renewable_share"
CLEAN = 0.8
"""From this share on energy is no concern."""


class Frugal:
    """Tries every setting in the space's order."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next setting, and at the end a plan: the least energy below a clean grid."""
        sofar = observed(past)
        if isinstance(sofar, Observed):
            return Try(sofar.some_untried(1000, past.study.seed)[0], "the next one in order")
        if not isinstance(sofar, Done):
            return sofar
        best, baseline = sofar.plan.rows[0].setting, past.study.baseline
        if setting_key(best) == setting_key(baseline):
            return sofar
        rows = (Row(CLEAN, best), Row(math.inf, baseline))
        return Done(Plan(rows, by=SIGNAL), f"{sofar.why}; from {CLEAN:.0%} renewable, the baseline")
