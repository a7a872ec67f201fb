"""The templates of the pages, and the functions that they call for numbers and states."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tuner.core import AccessRole, Caller
from tuner.moments import ago, when
from tuner.presentation import figures, reports, standing, studies, texts
from tuner.service.http.sessions import COOKIE, Sessions
from tuner.web.assets import tag
from tuner.web.gauges import gauge
from tuner.web.requests import MAY_CHANGE
from tuner.web.sparklines import sparkline

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
