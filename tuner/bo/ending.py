"""Why a search ends: one of four reasons, by the term of the decision that ended it."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace

from tuner import guard
from tuner.bo.explore import FLAT, Rules, explore
from tuner.bo.search import Search
from tuner.core import Safety, render_setting

BOLDER = {
    Safety.STRICT: (Safety.BALANCED, Safety.OFF),
    Safety.BALANCED: (Safety.OFF,),
    Safety.ADVISE: (Safety.OFF,),
}
"""The levels of safety with a lower price of a violation, the next one first."""


def ending(search: Search, without: Set[str] = frozenset()) -> str:
    """Return why a search tries no further setting.

    The reasons: its trials are used, no setting promises a gain, no gain is proven after the first
    windows, or the settings that promise one are too likely to break a limit. The last one also names
    the best of these settings, and the setting that the next bolder level of safety would try.
    """
    if search.past.left <= 0:
        return f"all {search.study.terms.trials} trials are used"
    rules, least = Rules(search), search.caution.trial
    row = rules.argmax(rules.gain, rules.gain > least)
    if row is None:
        return f"no setting left is likely to gain {least:.1%}".replace("%", " %")
    if FLAT not in without and not rules.nothing_keeps() and rules.flat():
        return "no gain is proven yet"
    # Below the best, if it keeps the limits.
    saved = float(rules.gain[row] * search.effort[row] / search.chance[row].clamp_min(1e-9))
    setting, promise = search.grid.settings[row], -math.expm1(-saved)
    best = f"{render_setting(setting)}, {promise:.1%}, chance {search.percent(row)}"
    predicted = search.view.predicted(row)
    own = [limit for limit in search.evidence.limits or () if limit.metric in predicted]
    limit = min(own, key=lambda x: guard.chance(predicted[x.metric], x), default=None)
    short = "a limit" if limit is None else limit.in_short
    text = f"what would gain is too likely to break {short} (best: {best})".replace("%,", " %,")
    return text + _bolder(search, without)


def _bolder(search: Search, without: Set[str]) -> str:
    """Return what the next level of safety that tries a further setting would try; empty without one."""
    study = search.study
    for level in BOLDER.get(study.terms.safety, ()):
        terms = replace(study.terms, safety=level)
        past = replace(search.past, study=replace(study, terms=terms))
        chosen = explore(replace(search, past=past), without)
        if chosen is not None:
            return f"; with safety {level} it would try {render_setting(chosen.setting)}"
    return ""
