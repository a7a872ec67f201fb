"""Tables by two signals: each column, a value of the second signal, is a search of its own.

A column has the evidence of windows alike in the second signal alone, and its own baseline; within it the
first signal is an input of the model. No law says how an unknown second signal acts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tuner import guard
from tuner.core import LOAD_REACH, Done, Past, Plan, Row, Suggestion, Try, Wait, is_at

Search = Callable[[Past], Suggestion]
"""Returns the next trial for a plan by the first signal, or the plan."""

BASELINE_TRIES = 2
"""After this number of baseline windows without a result, a column keeps the baseline."""


def suggest_by_column(past: Past, search: Search) -> Suggestion:
    """Return the next trial for the present column, or the table.

    Raises:
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    study, by = past.study, past.study.terms.columns_by
    if by not in past.context:
        return Wait(f"the agent does not report {by}; check the signals of the target")
    here, where = past.near({by: past.context[by]}), f"at {by} = {past.context[by]:.4g}, "
    if here.limits is not None:
        answer = search(here)
        if isinstance(answer, Wait):
            return answer
        refused = _refused(past, answer) if isinstance(answer, Try) else None
        if isinstance(answer, Try) and refused is None:
            return replace(answer, why=where + answer.why)
        return Done(_table(past, search), where + (refused or answer.why))
    tried = [t for t in here.trials if t.tries(study.baseline) and t.state.final]
    if past.left > 0 and len(tried) < BASELINE_TRIES:
        return Try(study.baseline, f"{where}the baseline is measured first")
    return Done(_table(past, search), f"{where}the baseline could not be measured")


def _refused(past: Past, trial: Try) -> str | None:
    """Return why the guard refuses a trial: the study would then hold the baseline at every load."""
    signals = past.study.terms.signals
    load = {by: past.context[by] for by in signals if by in past.context}
    evidence = past.at({**load, **trial.context})
    return guard.objection(past.study, evidence, past.trials, trial.setting) or guard.risk(
        past.study, evidence, trial.predicted
    )


def _table(past: Past, search: Search) -> Plan:
    """Return the columns at each distinct value of the second signal, the baseline above."""
    study, by = past.study, past.study.terms.columns_by
    values: list[float] = []
    for value in sorted({t.ran_at[by] for t in past.trials if t.solid and by in t.ran_at})[::-1]:
        if not any(is_at({by: value}, {by: above}) for above in values):
            values.append(value)
    rest = Plan((Row(math.inf, study.baseline),), study.terms.rows_by, eager=True)
    columns: list[tuple[float, float | None, Plan]] = []
    for value in sorted(values):
        here = past.near({by: value})
        over = search(replace(here, withdrawn=here.withdrawn + max(0, here.left)))
        plan = over.plan if isinstance(over, Done) and over.plan.by else rest
        columns.append((value * LOAD_REACH, value, plan))
    if all(study.rests(row.setting) for _, _, plan in columns for row in plan.rows):
        return Plan.single(study.baseline)
    return Plan.table(by, [*columns, (math.inf, None, rest)])
