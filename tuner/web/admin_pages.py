"""The pages for admins: tokens, the audit log, and versions."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import version as installed

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tuner.core import AccessRole, InvalidInput
from tuner.service.fleet import FleetOverview
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.sessions import Sessions
from tuner.web.render import Pages
from tuner.web.requests import Posted, read_form, require_role
from tuner.wire import PROTOCOL, TOKEN_DAYS, Health, TokenDraft

SHOWN = ("botorch", "torch", "sqlalchemy", "fastapi", "uvicorn", "plotly")
ROLES = (
    AccessRole.VIEWER,
    AccessRole.OPERATOR,
    AccessRole.ADMIN,
    AccessRole.GRID,
    AccessRole.ENROL,
)


def admin_pages(pages: Pages, fleet: FleetOverview, sessions: Sessions, version: str) -> APIRouter:
    """Return the routes of the pages for tokens, the audit log and versions."""
    router = APIRouter(route_class=BoundedRoute)
    access = sessions.access

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
    def create(request: Request, fields: Posted) -> Response:
        """Create a token, and show it once."""
        form = read_form(request, fields, sessions, AccessRole.ADMIN)
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
    def revoke(request: Request, fields: Posted) -> Response:
        """Revoke a token."""
        access.revoke(read_form(request, fields, sessions, AccessRole.ADMIN).text("name"))
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
