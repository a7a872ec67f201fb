"""Explain the model's predictions for a study, knob by knob, with the search that picks the next trial."""

from __future__ import annotations

from collections import Counter
from itertools import islice, takewhile

from tuner import guard
from tuner.bo.ending import ending
from tuner.bo.explore import explore
from tuner.bo.search import Search
from tuner.bo.suggest import search_of
from tuner.core import (
    BelievedSetting,
    Explanation,
    Knob,
    KnobSlice,
    Past,
    Setting,
    TrialState,
    incumbent,
    render_setting,
)

MOST_POINTS = 60
"""The most values of a knob in an explanation; a knob with more is shown at regular intervals."""
MOST_REFUSED = 8
MOST_LOOKED_AT = 500
"""The number of the most promising settings that are checked for a refusal."""


def explain(past: Past, query: Setting | None = None) -> Explanation:
    """Return the predictions for each knob around the best setting, and the refused settings with reasons.

    With `query` also the prediction for that setting.

    A pure function of study, trials and seed, as `tuner.bo.suggest.suggest` is.

    Raises:
        MetricUnavailable: no trial measured a metric that the study aims at or limits.
    """
    study = past.study
    if past.limits is None:
        return Explanation(text="the baseline has not been measured yet")
    if study.space.size == 1:
        return Explanation(text="there is only one setting")
    search = search_of(past)
    through = _through(past)
    chosen = explore(search) if past.left > 0 and study.searching else None
    if chosen is not None:
        text = f"next it would try {render_setting(chosen.setting)}: {chosen.why}"
    elif not study.searching:
        text = ""
    else:
        text = f"no further trial: {ending(search)}"
    row = None if query is None else search.grid.row(query)
    return Explanation(
        text=f"{text}{'. ' * bool(text)}Probability of each hypothesis: {_by_hypothesis(search)}",
        through=through,
        slices=tuple(_slice(search, study.space.knob(n), through) for n in search.grid.names),
        refused=_refused(search, through),
        query=None if row is None else _believed(search, row, through),
    )


def _by_hypothesis(search: Search) -> str:
    """Return a text with the probability of the measurements under each hypothesis about the objective."""
    model = search.view.models[0]
    shares: Counter[str] = Counter()
    for prior, weight in zip(model.mixture.hypotheses(), model.weights.tolist(), strict=True):
        shares[prior.name] += weight
    parts = (f"{name}: {share:.0%}".replace("%", " %") for name, share in shares.most_common())
    return "; ".join(parts)


def _through(past: Past) -> Setting:
    """Return the held or proposed setting, else the best measured one, else the baseline."""
    study = past.study
    plan = study.held or study.proposed
    if plan is not None:
        return plan.chief(study.baseline)
    best = incumbent(study, past.evidence)
    return best.setting if best is not None else study.baseline


def _slice(search: Search, knob: Knob, through: Setting) -> KnobSlice:
    """Return the predictions for the values of one knob, the others as in `through`."""
    every = -(-len(knob.values) // MOST_POINTS)
    sampled = [v for n, v in enumerate(knob.values) if n % every == 0 or v == through[knob.name]]
    rows = {value: search.grid.row({**through, knob.name: value}) for value in sampled}
    points = {v: _believed(search, row, through) for v, row in rows.items() if row is not None}
    return KnobSlice(knob=knob.name, values=tuple(points), points=tuple(points.values()))


def _refused(search: Search, through: Setting) -> tuple[BelievedSetting, ...]:
    """Return the settings whose prediction is better than that of `through` but that would not be tried."""
    beaten, best = search.grid.row(through), search.view.cost.argsort()[:MOST_LOOKED_AT].tolist()
    believed = (_believed(search, n, through) for n in takewhile(lambda row: row != beaten, best))
    return tuple(islice((one for one in believed if one.refused), MOST_REFUSED))


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
    """Return the reason why the search does not try a row; empty if it may try it."""
    if bool(search.allowed[row]):
        return ""
    setting, trials = search.grid.settings[row], search.past.trials
    if why := guard.objection(search.study, search.evidence, trials, setting):
        return why
    if row in search.view.measured:
        return "it has been measured often enough"
    if any(t.state is TrialState.CONTAMINATED for t in trials if search.grid.row(t.setting) == row):
        return "its windows were contaminated too often"
    return "it is being measured"
