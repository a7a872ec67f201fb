"""The explanation of a study by its policy, and the correlations of its metrics."""

from __future__ import annotations

import shlex
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tuner import guard
from tuner.core import (
    BelievedSetting,
    Candidate,
    Explains,
    Explanation,
    InvalidInput,
    Past,
    Setting,
    SettingKey,
    Study,
    Trial,
    Verdict,
    ranked,
    setting_key,
    trials_spent,
)
from tuner.service.views import chosen, setting_view
from tuner.study.loop import Loop
from tuner.wire import ExplanationView

LEAST_TRIALS = 5
"""The fewest trials of a correlation: of fewer, the order of two metrics agrees by chance. Our choice."""
MOST_SETTINGS = 150
"""The most settings for a model's fit, whose time grows with their cube, to minutes. Our choice."""


def explained(loop: Loop, name: str, setting: str = "") -> ExplanationView:
    """Return the explanation of a study by its policy, computed from its trials again.

    With `setting`, as `knob=value knob=value`, also why this setting is not held; knobs that it leaves out
    are as in the best setting. Of more than `MOST_SETTINGS` settings only some are used; the text gives
    both numbers.

    Raises:
        NotFound: there is no such study.
        InvalidInput, UnknownKnob, OutOfRange: the setting cannot be read, or is not in the space.
    """
    study = loop.store.studies.get(name)
    trials = tuple(loop.store.trials.list(name))
    past = Past(study=study, trials=trials)
    policy = loop.policies(study.policy)
    best = chosen(study, past.evidence)
    held = study.baseline if best is None else best.setting
    named = _spelled(study, setting)
    query = study.space.canonical({**held, **named}) if named else None
    if isinstance(policy, Explains):
        explanation = policy.explain(bounded(past), *([] if query is None else [query]))
        count = len({setting_key(trial.setting) for trial in past.trials})
        if count > MOST_SETTINGS:
            part = f"{MOST_SETTINGS} of {count} settings: the best and the latest"
            text = f"{explanation.text}. To be fast it uses {part}"
            explanation = replace(explanation, text=text)
    else:
        explanation = Explanation(text=f"the policy {study.policy} has no model to explain")
    if not study.searching:
        first, *others = loop.store.studies.revisions(name)
        ends = [b for a, b in pairwise([first, *others]) if a.study.searching > b.study.searching]
        last = [first, *ends][-1]  # of the present search: a changed device or limit begins another
        why = last.study.reason or last.why
        explanation = replace(explanation, text=f"the search has ended: {why}. {explanation.text}")
    metrics = (study.objective.metric, *(c.metric for c in study.constraints))
    return ExplanationView.of(
        study,
        study=name,
        explained=isinstance(policy, Explains),
        metrics=tuple(dict.fromkeys(metrics)),
        limits=past.evidence.limits or (),
        correlations=correlations(study, trials),
        explanation=explanation,
        held=setting_view(past.evidence, held),
        query=None if query is None else setting_view(past.evidence, query),
        why_not="" if query is None else _why_not(past, best, query, explanation.query),
    )


def _spelled(study: Study, text: str) -> Setting:
    """Return the values that a text names. Raises InvalidInput, UnknownKnob, OutOfRange."""
    try:
        pairs = [word.partition("=") for word in shlex.split(text)]
    except ValueError:  # an open quote
        pairs = [("", "", "")]
    if not all(name and equals for name, equals, _ in pairs):
        raise InvalidInput(f"cannot read the setting {text!r}", hint="write KNOB=VALUE KNOB=VALUE")
    names = [name for name, _, _ in pairs]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InvalidInput(
            f"{twice[0]} is given twice in the setting {text!r}", hint="give it once"
        )
    return {name: study.space.knob(name).spelled(value) for name, _, value in pairs}


def _why_not(
    past: Past, best: Candidate | None, query: Setting, believed: BelievedSetting | None
) -> str:
    """Return why a setting was not chosen: its windows, the guard, the model, or the search's end."""
    if best is not None and setting_key(query) == setting_key(best.setting):
        return "it is the best setting that was measured"
    if why := guard.objection(past.study, past.evidence, past.trials, query):
        return why
    measured = past.evidence.of(query)
    if measured is not None and measured.verdict is not Verdict.FEASIBLE:
        return "its windows do not prove that it keeps every limit"
    if measured is not None:
        return "it keeps every limit, but its objective is not proven better"
    if believed is not None and believed.refused:
        return f"not tried: {believed.refused}"
    if past.study.searching:
        return "not tried yet"
    return "not tried: its predicted gain was too small" if believed else "not tried before the end"


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
    return replace(past, trials=trials, withdrawn=past.spent - trials_spent(trials))


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
        pairs = [(own[metric].mean, goal) for own, goal in shown if metric in own]
        if len(pairs) >= LEAST_TRIALS and all(
            len(set(one)) > 1 for one in zip(*pairs, strict=True)
        ):
            own, goals = zip(*pairs, strict=True)
            related[metric] = statistics.correlation(_ranks(own), _ranks(goals))
    return dict(sorted(related.items(), key=lambda one: (-abs(one[1]), one[0])))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values; equal values share the mean of their ranks."""
    order = sorted(values)
    return [(bisect_left(order, value) + bisect_right(order, value)) / 2 for value in values]
