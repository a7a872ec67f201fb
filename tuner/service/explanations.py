"""The explanation of a study by its policy, and the correlations of its metrics."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.core import (
    Estimate,
    Explains,
    Explanation,
    Past,
    SettingKey,
    Study,
    Trial,
    ranked,
    setting_key,
    trials_spent,
)
from tuner.study.loop import Loop
from tuner.wire import ExplanationView

LEAST_TRIALS = 5
"""The fewest trials of a correlation: of fewer, the order of two metrics agrees by chance. Our choice."""
MOST_SETTINGS = 150
"""The most settings for a model's fit, whose time grows with their cube, to minutes. Our choice."""


def explained(loop: Loop, name: str) -> ExplanationView:
    """Return the explanation of a study by its policy, computed from its trials again. Raises NotFound.

    Of more than `MOST_SETTINGS` settings only some are used; the text gives both numbers.
    """
    study = loop.store.studies.get(name)
    trials = tuple(loop.store.trials.list(name))
    past = Past(study=study, trials=trials)
    policy = loop.policies(study.policy)
    if isinstance(policy, Explains):
        explanation = policy.explain(bounded(past))
        count = len({setting_key(trial.setting) for trial in past.trials})
        if count > MOST_SETTINGS:
            part = f"{MOST_SETTINGS} of {count} settings: the best and the latest"
            text = f"{explanation.text}. To be fast it uses {part}"
            explanation = replace(explanation, text=text)
    else:
        explanation = Explanation(text=f"the policy {study.policy} has no model to explain")
    metrics = (study.objective.metric, *(c.metric for c in study.constraints))
    return ExplanationView(
        study=name,
        policy=study.policy,
        explained=isinstance(policy, Explains),
        quantities=dict(study.quantities),
        metrics=tuple(dict.fromkeys(metrics)),
        limits=past.evidence.limits or (),
        correlations=correlations(study, trials),
        explanation=explanation,
    )


def bounded(past: Past, most: int = MOST_SETTINGS) -> Past:
    """Return a past with the trials of at most `most` settings; unchanged if it has no more.

    It keeps the baseline and the plan's settings, the best ones up to half of `most`, and the latest tried.
    """
    study = past.study
    tried = [setting_key(trial.setting) for trial in reversed(past.trials)]
    if len(set(tried)) <= most:
        return past
    planned = [row.setting for row in study.plan.rows] if study.plan else []
    best = [one.setting for one in ranked(study, past.evidence)][: most // 2]
    first = [setting_key(setting) for setting in (study.baseline, *planned, *best)]
    kept: set[SettingKey] = set(list(dict.fromkeys([*first, *tried]))[:most])
    trials = tuple(t for t in past.trials if setting_key(t.setting) in kept)
    dropped = trials_spent(past.trials) - trials_spent(trials)
    return replace(past, trials=trials, withdrawn=past.withdrawn + dropped)


def correlations(study: Study, trials: Sequence[Trial]) -> dict[str, float]:
    """Return each metric's rank correlation (Spearman) with the objective, the strongest first.

    Only complete trials that measured both count. A metric with fewer than `LEAST_TRIALS` of them, or with
    a constant value, is left out.
    """
    score, related = study.objective.score, dict[str, float]()
    shown = [
        (t.measurement.estimates, goal.mean)
        for t in trials
        if t.measurement and t.state.evidence and not t.censored
        and (goal := score(t.measurement.estimates, t.context))
    ]  # fmt: skip
    for metric in {name for estimates, _ in shown for name in estimates} - {study.objective.metric}:
        pairs = _both(metric, shown)
        if len(pairs) >= LEAST_TRIALS and all(
            len(set(one)) > 1 for one in zip(*pairs, strict=True)
        ):
            own, goals = zip(*pairs, strict=True)
            related[metric] = statistics.correlation(_ranks(own), _ranks(goals))
    return dict(sorted(related.items(), key=lambda one: (-abs(one[1]), one[0])))


def _both(
    metric: str, shown: Sequence[tuple[Mapping[str, Estimate], float]]
) -> list[tuple[float, float]]:
    """Return the pairs of a metric's value and the objective's, of trials that measured the metric."""
    return [(estimates[metric].mean, goal) for estimates, goal in shown if metric in estimates]


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values; equal values share the mean of their ranks."""
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value)) / 2 for value in values]
