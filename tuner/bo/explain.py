"""Explain the model's predictions for a study, knob by knob, with the search that picks the next trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

from tuner import guard
from tuner.bo.explore import rule_answers
from tuner.bo.mixture import Component
from tuner.bo.search import Search
from tuner.bo.suggest import next_trial, search_of, sibling_weight
from tuner.core import (
    BelievedSetting,
    Explanation,
    Knob,
    KnobSlice,
    Past,
    Setting,
    Study,
    TrialState,
    Verdict,
    incumbent,
    render_setting,
    setting_key,
)

MOST_POINTS = 60
"""The most values of a knob in an explanation; a knob with more is shown at regular intervals."""
MOST_REFUSED = 8
MOST_LOOKED_AT = 500
"""The number of the most promising settings that are checked for a refusal."""


def explain(past: Past) -> Explanation:
    """Return the predictions for each knob around the best setting, and the refused settings with reasons.

    A pure function of study, trials and seed, as `tuner.bo.suggest.suggest` is.

    Raises:
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    study = past.study
    if past.limits is None:
        return Explanation(text="the baseline has not been measured yet")
    if study.space.size == 1:
        return Explanation(text="there is only one setting")
    search = search_of(past, past.limits)
    through = _through(past)
    chosen = next_trial(search) if past.left > 0 else None
    text = (
        f"next it would try {render_setting(chosen.setting)}: {chosen.why}"
        if chosen is not None
        else "no further trial: little gain is left"
    )
    knobs = [study.space.knob(name) for name in search.grid.names]
    if study.terms.plan_by:
        text = f"at the load of the latest baseline; the next trial depends on {study.terms.plan_by} too"
    elif chosen is not None:
        text += (
            f". Its rules in order, of which the first with a setting decides: {_by_rule(search)}"
        )
    return Explanation(
        text=f"{text}. Probability of each hypothesis: {_by_hypothesis(search)}{_by_sibling(search)}",
        through=through,
        slices=tuple(_slice(search, knob, through) for knob in knobs),
        refused=tuple(_refused(search, through)),
    )


def _by_rule(search: Search) -> str:
    """Return a text with the choice of each rule by itself; the first rule with a choice decides."""
    answers = (
        f"{name}: {'none' if answer is None else render_setting(answer.setting)}"
        for name, answer in rule_answers(search).items()
    )
    return "; ".join(answers)


def _by_hypothesis(search: Search) -> str:
    """Return a text with the probability of the measurements under each hypothesis about the objective."""
    model = search.view.models[0]
    shares: Counter[str] = Counter()
    for component, weight in zip(model.mixture.components, model.weights.tolist(), strict=True):
        shares[component.prior.name] += weight
    parts = (f"{name}: {share:.0%}".replace("%", " %") for name, share in shares.most_common())
    return "; ".join(parts)


def _by_sibling(search: Search) -> str:
    """Return a text with the weight of each sibling of the study, empty where it has none."""
    if not search.past.memory.siblings:
        return ""
    mixture = search.view.models[0].mixture
    closeness = {s.posterior.study: s.closeness for s in search.past.memory.siblings}
    shares = dict.fromkeys(closeness, 0.0)
    for component, weight in zip(mixture.components, mixture.weights.tolist(), strict=True):
        names = component.prior.siblings
        for name, share in zip(names, _laws(component, len(names)), strict=True):
            shares[name] += weight * share
    each = "; ".join(f"{name} ({closeness[name]}) {share:.2f}" for name, share in shares.items())
    return f". {sibling_weight(search)}. Each sibling's weight: {each}"


def _laws(component: Component, count: int) -> list[float]:
    """Return the share of each of a component's siblings: alike where they are mixed."""
    if len(component.likely) != count:
        return [1.0 / max(1, count)] * count
    shares = torch.zeros(count, dtype=torch.float64)
    shares[component.likely] = component.shares
    return list(shares.tolist())


def _through(past: Past) -> Setting:
    """Return the held or proposed setting, else the best measured one, else the baseline."""
    study: Study = past.study
    plan = study.held or study.proposed
    if plan is not None:
        return plan.chief(study.baseline)
    best = incumbent(study, past.evidence)
    return best.setting if best is not None else study.baseline


def _slice(search: Search, knob: Knob, through: Setting) -> KnobSlice:
    every = -(-len(knob.values) // MOST_POINTS)
    sampled = [v for n, v in enumerate(knob.values) if n % every == 0 or v == through[knob.name]]
    rows = [(value, search.grid.row({**through, knob.name: value})) for value in sampled]
    inside = [(value, row) for value, row in rows if row is not None]
    return KnobSlice(
        knob=knob.name,
        values=tuple(value for value, _ in inside),
        points=tuple(_believed(search, row, through) for _, row in inside),
    )


def _refused(search: Search, through: Setting) -> Iterator[BelievedSetting]:
    """Yield the settings whose prediction is better than that of `through` but that would not be tried."""
    value = search.view.cost
    beaten = search.grid.row(through)
    listed = 0
    for row in value.argsort()[:MOST_LOOKED_AT].tolist():
        if listed == MOST_REFUSED or row == beaten:
            return
        believed = _believed(search, row, through)
        if believed.refused:
            listed += 1
            yield believed


def _believed(search: Search, row: int, through: Setting) -> BelievedSetting:
    """Return the prediction for a row; the setting `through` itself is never refused."""
    predicted = search.view.predicted(row)
    why = _why_not(search, row) or guard.risk(search.study, search.evidence, predicted) or ""
    return BelievedSetting(
        setting=search.grid.settings[row],
        predicted=predicted,
        chance=float(search.chance[row]),
        refused="" if row == search.grid.row(through) else why,
        measured=row in search.view.measured,
    )


def _why_not(search: Search, row: int) -> str:
    """Return why the search does not try a row, empty where it may."""
    if bool(search.allowed[row]):
        return ""
    measured = search.view.measured.get(row)
    if measured is not None and measured.verdict is Verdict.INFEASIBLE:
        return "it broke a limit in its measurements"
    if measured is not None:
        return "it has been measured often enough"
    key = setting_key(search.grid.settings[row])
    states = {t.state for t in search.past.trials if setting_key(t.setting) == key}
    if guard.silencing(search.study, search.past.trials) & search.grid.settings[row].items():
        return "the workload did not start with one of its values"
    if TrialState.FAILED in states:
        return "it has failed too often"
    if TrialState.CONTAMINATED in states:
        return "its windows were contaminated too often"
    return "it is being measured"
