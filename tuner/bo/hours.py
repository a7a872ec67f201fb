"""The next trial, and the plan, if a plan follows the hour: each part of the day has a separate search.

Hours, unlike loads, have no order of difficulty. So a part of the day has the evidence of only its
windows, and a separate baseline.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace

from tuner.bo.suggest import suggest
from tuner.core import (
    DAY_PARTS,
    HOUR,
    PART_HOURS,
    Done,
    Past,
    Plan,
    Row,
    Setting,
    Suggestion,
    Try,
    Wait,
    Worth,
    part_of_day,
    windows,
)

BASELINE_TRIES = 2
"""After this number of baseline windows without a result, a part of the day keeps the baseline."""


def suggest_by_hour(past: Past, without: Set[str] = frozenset()) -> Suggestion:
    """Return the next trial for the present part of the day, or the plan.

    Raises:
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    study = past.study
    if HOUR not in past.context:
        return Wait(f"the time of day is unknown: {HOUR}")
    part = part_of_day(past.context[HOUR])
    here, name = _within(past, part), f"hours {PART_HOURS * part}-{PART_HOURS * (part + 1)}: "
    if here.limits is not None:
        answer = suggest(here, without=without)
        if isinstance(answer, Try):
            return replace(answer, why=name + answer.why)
        return answer if isinstance(answer, Wait) else Done(_plan(past), name + answer.why)
    tried = windows(here.trials, study.baseline, least=Worth.ENDED)
    if past.left > 0 and len(tried) < BASELINE_TRIES:
        return Try(study.baseline, f"{name}the baseline is measured first")
    return Done(_plan(past), f"{name}the baseline could not be measured")


def _within(past: Past, part: int) -> Past:
    """Return a past with the windows of one part of the day; those of other parts still count as spent.

    All windows of the part are compared, at any other load that they report.
    """
    hour = {HOUR: float(PART_HOURS * part)}
    here = past.near(hour)
    alike = (
        replace(t, measurement=replace(t.measurement, context=hour)) if t.measurement else t
        for t in here.trials
    )
    return replace(here, trials=tuple(alike))


def _plan(past: Past) -> Plan:
    """Return the plan of the best measured setting of each part of the day, else the baseline."""
    study = past.study
    rows = []
    for part in range(DAY_PARTS):
        end = PART_HOURS * (part + 1)
        below = math.inf if part == DAY_PARTS - 1 else float(end)
        rows.append(Row(below, _best(_within(past, part)), at=end - PART_HOURS / 2))
    if all(study.rests(row.setting) for row in rows):
        return Plan.single(study.baseline)
    return Plan(tuple(rows), HOUR, hysteresis=0.0)


def _best(here: Past) -> Setting:
    """Return the setting to hold in a part of the day, from its measurements."""
    over = suggest(replace(here, withdrawn=here.withdrawn + max(0, here.left)))
    return over.plan.rows[0].setting if isinstance(over, Done) else here.study.baseline
