"""What a study's policy believes, asked of the policy itself."""

from __future__ import annotations

from dataclasses import replace

from tuner.core import (
    Explains,
    Explanation,
    Past,
    SettingKey,
    ranked,
    setting_key,
    trials_spent,
)
from tuner.study.loop import Loop
from tuner.wire import ExplanationView

MOST_SETTINGS = 150
"""A model's fit takes the cube of the number of its settings: more would take minutes. Our choice."""


def explained(loop: Loop, name: str) -> ExplanationView:
    """Return what a study's policy believes by its trials, worked out again. Raises NotFound.

    Of more than `MOST_SETTINGS` settings only some are used, and the text says how many.
    """
    study = loop.store.studies.get(name)
    trials = tuple(loop.store.trials.list(name))
    past = Past(study=study, trials=trials, memory=loop.memory.memory(study))
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
        explanation=explanation,
    )


def bounded(past: Past, most: int = MOST_SETTINGS) -> Past:
    """Return a past with the trials of at most that number of settings; as it is where it has no more.

    They are the baseline and the plan's, half of them the best, and the others the latest tried.
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
