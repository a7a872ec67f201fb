"""A complete policy: saves energy while the grid's power is dirty, and not while it is clean.

It tries the settings one by one. At the end its plan follows its own signal, the share of renewable power.
"""

from __future__ import annotations

import math

from tuner.core import Done, Past, Plan, Row, Suggestion, Try, Wait, incumbent, setting_key

SIGNAL = "renewable_share"
CLEAN = 0.8
"""From this share on energy does not matter."""


class Frugal:
    """Tries every setting in the space's order."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next setting, and at the end a plan: the least energy below a clean grid."""
        if past.limits is None:
            return Wait("the baseline has not been measured yet")
        study, tried = past.study, {setting_key(t.setting) for t in past.trials}
        untried = (s for s in study.space.grid() if setting_key(s) not in tried)
        if past.left > 0 and (following := next(untried, None)) is not None:
            return Try(following, "the next one in order")
        if past.running:
            return Wait("the last trial is still running")
        best = incumbent(study, past.evidence)
        if best is None or setting_key(best.setting) == setting_key(study.baseline):
            return Done(Plan.single(study.baseline), "no setting is better than the baseline")
        rows = (Row(CLEAN, best.setting), Row(math.inf, study.baseline))
        why = f"the best that keeps the limits; from {CLEAN:.0%} renewable, the baseline"
        return Done(Plan(rows, by=SIGNAL), why)
