"""What a study's policy believes, asked of the policy itself."""

from __future__ import annotations

from tuner.core import Explains, Explanation, Past
from tuner.study.loop import Loop
from tuner.wire import ExplanationView


def explained(loop: Loop, name: str) -> ExplanationView:
    """Return what a study's policy believes by its trials, worked out again. Raises NotFound."""
    study = loop.store.studies.get(name)
    trials = tuple(loop.store.trials.list(name))
    past = Past(study=study, trials=trials, memory=loop.memory.memory(study))
    policy = loop.policies(study.policy)
    if isinstance(policy, Explains):
        explanation = policy.explain(past)
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
