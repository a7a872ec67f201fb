"""Gauges of limits in SVG: the held value with its 95 % bound on a scale that extends beyond the limit."""

from __future__ import annotations

import math

from markupsafe import Markup

from tuner.core import Estimate, Limit, Verdict
from tuner.presentation.figures import figure
from tuner.wire import StudyView

WIDTH, HEIGHT = 220.0, 18.0


def gauge(view: StudyView, limit: Limit) -> Markup:
    """Return a gauge of the held setting's value against a limit; only text if it was not measured yet."""
    held = view.best or view.baseline
    value = held.metrics.get(limit.metric)
    required = f"{limit.op} {figure(limit.metric, limit.value, declared=view.quantities)}"
    if value is None:
        return Markup("<p>{} {} <small>not measured yet</small></p>").format(limit.metric, required)
    edge = value.high if limit.op == "<=" else value.low
    bound = edge if math.isfinite(edge) else value.mean
    verdict = limit.verdict(value)
    word = {Verdict.FEASIBLE: "kept", Verdict.INFEASIBLE: "broken", Verdict.UNSURE: "unsure"}[
        verdict
    ]
    shown = figure(limit.metric, value.mean, declared=view.quantities)
    edge_text = figure(limit.metric, bound, declared=view.quantities)
    return Markup(
        '<div class="gauge {}"><span>{}</span> {} <span><b>{}</b> (95 % bound {}), limit {}: '
        '<b class="word">{}</b></span></div>'
    ).format(verdict, limit.metric, _drawn(value, bound, limit), shown, edge_text, required, word)


def _drawn(value: Estimate, bound: float, limit: Limit) -> Markup:
    """Return the SVG of a gauge, on a scale from 0 to 1.2 times the largest number."""
    most = 1.2 * max(abs(limit.value), abs(value.mean), abs(bound)) or 1.0

    def at(number: float) -> str:
        return f"{min(WIDTH, max(0.0, WIDTH * number / most)):.1f}"

    low, high = sorted((value.mean, bound))
    return Markup(
        '<svg viewBox="0 0 {w:g} {h:g}" aria-hidden="true">'
        '<rect class="track" width="{w:g}" height="{h:g}"/>'
        '<rect class="value" width="{value}" height="{h:g}"/>'
        '<line class="spread" x1="{low}" x2="{high}" y1="{m:g}" y2="{m:g}"/>'
        '<line class="limit" x1="{limit}" x2="{limit}" y1="0" y2="{h:g}"/></svg>'
    ).format(
        w=WIDTH, h=HEIGHT, m=HEIGHT / 2, value=at(value.mean), low=at(low), high=at(high),
        limit=at(limit.value),
    )  # fmt: skip
