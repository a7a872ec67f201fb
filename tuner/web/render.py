"""The templates of the pages, the functions that they call, small charts in SVG, and served files."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tuner.core import AccessRole, Caller, ConfigError, Estimate, Limit, NotFound, Verdict
from tuner.moments import ago, when
from tuner.presentation import figures, reports, standing, studies, texts
from tuner.presentation.figures import figure
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.sessions import COOKIE, Sessions
from tuner.web.requests import MAY_CHANGE
from tuner.wire import StudyView

OURS = Path(__file__).parent / "static"
PLOTLY = "plotly.min.js"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
GAUGE_WIDTH, GAUGE_HEIGHT = 220.0, 18.0
WIDTH, HEIGHT, EDGE = 120.0, 24.0, 2.0
HEADERS = {
    # The hashes are of style sheets that plotly.js creates: an empty one, and that of its maps.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' "
    "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def file_of(name: str) -> Path:
    """Return the path of an asset's file. Raises NotFound: there is no such asset."""
    served = {path.name: path for path in OURS.iterdir() if path.suffix in TYPES}
    if name == PLOTLY:
        served[PLOTLY] = plotly_file()
    if name not in served or not served[name].is_file():
        raise NotFound(f"there is no file {name}")
    return served[name]


def plotly_file() -> Path:
    """Return the path of plotly.js in its Python package. Raises ConfigError: it is not installed."""
    # The package is not imported, because the import takes a second and only one file is needed.
    spec = find_spec("plotly")
    folders = spec.submodule_search_locations if spec is not None else None
    file = Path(next(iter(folders or ["."]))) / "package_data" / "plotly.min.js"
    if not file.is_file():
        raise ConfigError("plotly is not installed", hint="pip install 'jouletune[tuner]'")
    return file


@cache
def tag(name: str) -> str:
    """Return a hash of an asset's content for its URL, so that browsers may cache the asset permanently."""
    return hashlib.sha256(file_of(name).read_bytes()).hexdigest()[:12]


@cache
def gzipped(file: Path) -> bytes:
    """Return an asset's content as gzip; plotly.js takes a second, so it is compressed once."""
    return gzip.compress(file.read_bytes(), mtime=0)


def assets() -> APIRouter:
    """Return the route of the assets."""
    router = APIRouter(route_class=BoundedRoute)

    @router.get("/assets/{name}")
    def asset(name: str, request: Request) -> Response:
        """Return one file."""
        file = file_of(name)
        cache_control = (
            "public, max-age=31536000, immutable" if request.query_params else "no-cache"
        )
        headers = {"Cache-Control": cache_control, "X-Content-Type-Options": "nosniff"}
        headers["Vary"] = "Accept-Encoding"
        kind = TYPES[file.suffix]
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return FileResponse(file, media_type=kind, headers=headers)
        headers["Content-Encoding"] = "gzip"
        return Response(gzipped(file), media_type=kind, headers=headers)

    return router


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
        return f"{min(GAUGE_WIDTH, max(0.0, GAUGE_WIDTH * number / most)):.1f}"

    low, high = sorted((value.mean, bound))
    return Markup(
        '<svg viewBox="0 0 {w:g} {h:g}" aria-hidden="true">'
        '<rect class="track" width="{w:g}" height="{h:g}"/>'
        '<rect class="value" width="{value}" height="{h:g}"/>'
        '<line class="spread" x1="{low}" x2="{high}" y1="{m:g}" y2="{m:g}"/>'
        '<line class="limit" x1="{limit}" x2="{limit}" y1="0" y2="{h:g}"/></svg>'
    ).format(
        w=GAUGE_WIDTH, h=GAUGE_HEIGHT, m=GAUGE_HEIGHT / 2, value=at(value.mean), low=at(low), high=at(high),
        limit=at(limit.value),
    )  # fmt: skip


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


class Pages:
    """Renders the templates of `tuner.web`."""

    def __init__(self, sessions: Sessions, version: str, now: Callable[[], datetime]) -> None:
        self._sessions, self._now = sessions, now
        self._templates = Environment(
            loader=PackageLoader("tuner.web"),
            autoescape=select_autoescape(),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for room in (figures, reports, standing, studies, texts):
            self._templates.globals.update(
                {n: f for n, f in vars(room).items() if not n.startswith("_") and callable(f)}
            )
        self._templates.globals.update(
            version=version, moment=self._moment, data=data, tag=tag, sparkline=sparkline, gauge=gauge,
            THE_BASELINE=figures.THE_BASELINE,
        )  # fmt: skip

    def page(
        self, request: Request, name: str, status: int = 200, **values: object
    ) -> HTMLResponse:
        """Return a page; `values` are the variables of its template."""
        caller: Caller | None = getattr(request.state, "caller", None)
        cookie = request.cookies.get(COOKIE, "")
        shown = {
            "caller": caller,
            "may_change": caller is not None and caller.role in MAY_CHANGE,
            "is_admin": caller is not None and caller.role is AccessRole.ADMIN,
            "form_key": self._sessions.form_key(cookie) if cookie else "",
            "here": request.scope["path"],
            **values,
        }
        text = self._templates.get_template(f"{name}.html").render(shown)
        return HTMLResponse(text, status, HEADERS)

    def _moment(self, at: datetime) -> Markup:
        """Return a time relative to now, with the absolute time in UTC as its title."""
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            at.isoformat(),
            when(at),
            ago(at, self._now()),
        )


def data(value: Mapping[str, Any] | None) -> Markup:
    """Return a value as JSON for a script, escaped so that it cannot end the enclosing element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
