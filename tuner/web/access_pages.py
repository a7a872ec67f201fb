"""The pages for signing in and out, and those for admins: tokens, the audit log, and versions."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import version as installed

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from tuner.core import AccessRole, InvalidInput, RateLimited, TuningError, Unauthorised
from tuner.service.fleet import FleetOverview
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.gate import status_of
from tuner.service.http.sessions import COOKIE, LASTS, Sessions
from tuner.web.render import Pages
from tuner.web.requests import Fields, Form, Posted, require_role, signed_form
from tuner.wire import PROTOCOL, TOKEN_DAYS, Health, TokenDraft

SHOWN = ("botorch", "torch", "sqlalchemy", "fastapi", "uvicorn", "plotly")
ROLES = (
    AccessRole.VIEWER,
    AccessRole.OPERATOR,
    AccessRole.ADMIN,
    AccessRole.GRID,
    AccessRole.ENROL,
)


def session_pages(pages: Pages, sessions: Sessions, *, secure: bool) -> APIRouter:
    """Return the routes that start and end a browser's session."""
    router = APIRouter(route_class=BoundedRoute)

    @router.get("/login")
    def ask(request: Request) -> Response:
        """Show the form for a token."""
        back = request.query_params.get("next", "/")
        return pages.page(request, "login", back=_ours(back), error=None)

    async def opened(request: Request, fields: Posted) -> str | TuningError:
        """Return the cookie of a new session, or the error with which it was refused."""
        address = request.client.host if request.client else ""
        try:
            return await sessions.lookups.run(
                lambda token: sessions.open(token, address), _first(fields, "token").strip()
            )
        except (Unauthorised, RateLimited) as error:
            return error

    @router.post("/login")
    def sign_in(request: Request, fields: Posted, cookie: object = Depends(opened)) -> Response:
        """Start a session in this browser and return to the requested page."""
        back = _ours(_first(fields, "next") or "/")
        if isinstance(cookie, TuningError):
            return pages.page(request, "login", status_of(cookie), back=back, error=cookie)
        answer = RedirectResponse(back, status_code=303)
        answer.set_cookie(
            COOKIE,
            str(cookie),
            max_age=int(LASTS.total_seconds()),
            httponly=True,
            samesite="lax",
            secure=secure,
        )
        return answer

    @router.post("/logout", dependencies=[signed_form(sessions, *AccessRole)])
    def sign_out() -> Response:
        """End the session in this browser."""
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return router


def _first(fields: Fields, name: str) -> str:
    """Return the first value of a field; empty if it is missing."""
    return next(iter(fields.get(name, ())), "")


def _ours(back: str) -> str:
    """Return a link's target if it is a path on this site, else `/`, to prevent open redirects."""
    return back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"


def admin_pages(pages: Pages, fleet: FleetOverview, sessions: Sessions, version: str) -> APIRouter:
    """Return the routes of the pages for tokens, the audit log and versions."""
    router = APIRouter(route_class=BoundedRoute)
    access, by_admin = sessions.access, signed_form(sessions, AccessRole.ADMIN)

    def shown(request: Request, created: object = None) -> Response:
        return pages.page(
            request, "access", tokens=access.tokens(), audit=access.audit(200)[::-1], made=created,
            roles=ROLES, days=TOKEN_DAYS,
        )  # fmt: skip

    @router.get("/access")
    def show(request: Request) -> Response:
        """Show tokens and the audit log."""
        require_role(request, AccessRole.ADMIN)
        return shown(request)

    @router.post("/access")
    def create(request: Request, form: Form = by_admin) -> Response:
        """Create a token, and show it once."""
        days = form.text("days") or str(TOKEN_DAYS)
        if (
            form.text("role") not in ROLES
            or not re.fullmatch("[0-9]{1,4}", days)
            or int(days) > 3650
        ):
            raise InvalidInput("a token needs a role and 0 (no expiry) to 3650 days")
        draft = TokenDraft.model_validate(
            {"name": form.text("name"), "role": form.text("role"), "days": int(days)}
        )
        return shown(request, access.create(draft))

    @router.post("/access/revoke")
    def revoke(form: Form = by_admin) -> Response:
        """Revoke a token."""
        access.revoke(form.text("name"))
        return RedirectResponse("/access", status_code=303)

    @router.get("/about")
    def about(request: Request) -> Response:
        """Show the versions of the tuner's software and the state of its database and agents."""
        return pages.page(request, "about", facts=facts(fleet, version))

    return router


def facts(fleet: FleetOverview, version: str) -> dict[str, str]:
    """Return the versions of the tuner's software and the state of its database and agents, by name."""
    store = fleet.operations.loop.store
    store.ping()
    view = fleet.view()
    offline = view.health.get(Health.OFFLINE, 0)
    return {
        "jouletune": version,
        "wire protocol": str(PROTOCOL),
        "Python": f"{platform.python_version()} on {sys.platform}",
        **{name: installed(name) for name in SHOWN},
        "database": "responds",
        "agents' devices": f"{len(view.rows) - offline} of {len(view.rows)} online",
    }
