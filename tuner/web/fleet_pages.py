"""All devices and studies at a glance, and the order to stop them all."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tuner.core import Study
from tuner.service.fleet import FleetOverview, saves_now
from tuner.service.http.sessions import Sessions
from tuner.web.render import Pages
from tuner.web.requests import Posted, read_form
from tuner.wire import Change

PAGE = 100


def fleet_pages(pages: Pages, fleet: FleetOverview, sessions: Sessions) -> APIRouter:
    """Return the routes of the fleet."""
    router = APIRouter()
    operations = fleet.operations

    @router.get("/")
    def show(request: Request, health: str = "", find: str = "", page: int = 1) -> Response:
        """Show every device."""
        view = fleet.view()
        rows = [
            row
            for row in view.rows
            if health in ("", row.health) and find.lower() in f"{row.device} {row.board}".lower()
        ]
        last = max(1, -(-len(rows) // PAGE))
        at = min(max(page, 1), last)
        return pages.page(
            request, "fleet", view=view, rows=rows[(at - 1) * PAGE : at * PAGE], found=len(rows),
            health=health, find=find, at=at, last=last, stop=operations.stop_state(),
        )  # fmt: skip

    @router.get("/studies")
    def studies(request: Request, phase: str = "", page: int = 1) -> Response:
        """List studies, latest first."""
        store = operations.loop.store
        found = store.studies.ids(phase=phase or None)[::-1]
        last = max(1, -(-len(found) // PAGE))
        at = min(max(page, 1), last)
        shown = store.studies.stored(among=found[(at - 1) * PAGE : at * PAGE])[::-1]
        standing = {} if operations.stop_state().in_force else store.devices.standing()
        saving = {s.id for s in shown for d in s.devices if saves_now(s, standing.get(d))}
        rows = [(s, fleet.summaries.of(s), isinstance(s, Study), s.id in saving) for s in shown]
        return pages.page(request, "studies", rows=rows, phase=phase, at=at, last=last)

    @router.post("/stop")
    def stop(request: Request, fields: Posted) -> Response:
        """Stop everything."""
        form = read_form(request, fields, sessions)
        operations.stop_all(Change(who=form.caller.name, why=form.text("why")))
        return RedirectResponse("/", status_code=303)

    @router.post("/lift")
    def lift(request: Request, fields: Posted) -> Response:
        """Let the studies go on."""
        form = read_form(request, fields, sessions)
        operations.lift(Change(who=form.caller.name, why=form.text("why")))
        return RedirectResponse("/", status_code=303)

    return router
