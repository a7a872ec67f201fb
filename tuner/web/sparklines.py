"""Small charts as SVG, without scripts and inline styles, which the pages' policy forbids."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tuner.core import Limit
from tuner.presentation.figures import figure

WIDTH, HEIGHT, EDGE = 120.0, 24.0, 2.0


def sparkline(
    metric: str, points: Sequence[tuple[float, float]], limit: Limit | None = None
) -> Markup:
    """Return a chart of a metric over time with its limit as a dashed line; empty without points.

    A point is a time in seconds and a value.
    """
    if not points:
        return Markup("")
    values = [value for _, value in points]
    around = [*values, limit.value] if limit else values
    # The height spans at least a fifth of the value, so that noise of one percent does not fill it.
    middle = (min(around) + max(around)) / 2.0
    span = max(max(around) - min(around), 0.2 * abs(middle)) or 1.0
    least = middle - span / 2.0
    begin = points[0][0]
    length = (points[-1][0] - begin) or 1.0

    def height(value: float) -> str:
        return f"{HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (value - least) / span:.1f}"

    path = " ".join(
        f"{EDGE + (WIDTH - 2 * EDGE) * (at_s - begin) / length:.1f},{height(value)}"
        for at_s, value in points
    )
    last = figure(metric, values[-1])
    label, bound = f"{metric}: last {last}", Markup("")
    broken = limit is not None and not limit.holds(values[-1])
    if limit is not None:
        label += f", limit {limit.op} {figure(metric, limit.value)}"
        bound = Markup('<line class="bound" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            f"{WIDTH:g}", height(limit.value), height(limit.value)
        )
    return Markup(
        '<svg class="spark{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><title>{}</title>{}<polyline points="{}"/></svg>'
    ).format(" broken" if broken else "", f"{WIDTH:g}", f"{HEIGHT:g}", label, label, bound, path)
