"""Sentences about the effect of a change of a study's constraints."""

from __future__ import annotations

from tuner.moments import when
from tuner.presentation.figures import change, figure, joined, percent
from tuner.presentation.texts import requested_metrics
from tuner.wire import ConstraintRevision, HeldUnder, StudyView


def effect_lines(changed: ConstraintRevision, view: StudyView) -> list[str]:
    """Return the effect of a change: the result, then the held settings before and after, if any."""
    effect = changed.effect
    if effect is None:
        return ["The study was created with these."]
    held = f"held since {when(effect.held_at)}" if effect.held_at is not None else ""
    result = {
        "kept": "No change: the held setting keeps the new limits.",
        "other": f"The study searched again; another setting is {held}."
        if effect.before
        else f"No setting was held then; one is {held}.",
        "same": f"The study searched again; the same setting is {held}.",
        "searching": "The study is searching again.",
        "ended": "The study searched again, but held nothing before its next change.",
    }[effect.result]
    sides = (("Before", effect.before), ("After", effect.after))
    return [result, *(f"{name}: {_described(one, view)}." for name, one in sides if one)]


def _described(held: HeldUnder, view: StudyView) -> str:
    """Return a held setting with its objective, its value for each limit, and its saving."""
    quantities, metrics = view.quantities, held.setting.metrics
    limits = {limit.metric: limit for limit in held.limits}
    parts = []
    for metric in dict.fromkeys((*requested_metrics(view)[:1], *limits)):
        estimate, limit = metrics.get(metric), limits.get(metric)
        text = "not measured"
        if estimate is not None:
            text = figure(metric, estimate.mean, estimate.stderr, quantities)
        bound = ""
        if limit is not None:
            bound = f" (limit {limit.op} {figure(metric, limit.value, declared=quantities)})"
        parts.append(f"{metric} {text}{bound}")
    if held.saving is not None:
        parts.append(f"saves {percent(held.saving.mean, held.saving.stderr)}")
    return f"{change(held.setting.setting, view.baseline.setting)}: {joined(parts)}"
