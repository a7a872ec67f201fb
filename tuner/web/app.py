"""The web pages of the tuner, as an ASGI application beside the API."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from tuner.core import InvalidInput, NotFound, TuningError, first_fault
from tuner.service.fleet import FleetOverview
from tuner.service.http.gate import status_of
from tuner.service.http.routes import FOR_VIEWERS
from tuner.service.http.sessions import Sessions
from tuner.web.access_pages import admin_pages, session_pages
from tuner.web.fleet_pages import device_pages, fleet_pages
from tuner.web.history_pages import history_pages
from tuner.web.looks import Looks
from tuner.web.render import Pages, assets
from tuner.web.study_pages import study_actions, study_pages
from tuner.wire import Problem


def create_pages(
    fleet: FleetOverview, sessions: Sessions, version: str, *, secure: bool
) -> ASGIApp:
    """Return the application; `secure` is whether browsers reach the pages only by TLS."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    pages, looks = Pages(sessions, version, fleet.operations.loop.now), Looks(fleet.operations)
    for router in (
        session_pages(pages, sessions, secure=secure),
        assets(),
    ):
        app.include_router(router)
    for router in (
        fleet_pages(pages, fleet, sessions),
        device_pages(pages, fleet, looks),
        study_pages(pages, fleet.operations, looks),
        study_actions(pages, fleet.operations, sessions),
        history_pages(pages, fleet.operations),
        admin_pages(pages, fleet, sessions, version),
    ):
        app.include_router(router, dependencies=[FOR_VIEWERS])

    @app.exception_handler(TuningError)
    def family(request: Request, error: TuningError) -> Response:
        """Show one of our errors as a page."""
        shown = Problem(code=error.code, message=error.message, hint=error.hint)
        return pages.page(request, "error", status_of(error), error=shown)

    @app.exception_handler(ValidationError)
    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: ValidationError | RequestValidationError) -> Response:
        """Show the first error of a form's or an address's validation as a page."""
        refused = InvalidInput(first_fault(error), hint="go back and correct it")
        return pages.page(request, "error", status_of(refused), error=refused)

    @app.exception_handler(HTTPException)
    def unroutable(request: Request, error: HTTPException) -> Response:
        """Show an error of HTTP, like a missing page, as a page."""
        missing = NotFound(
            f"there is no page {request.scope['path']}", hint="start from the fleet page"
        )
        problem = missing if error.status_code == 404 else TuningError(str(error.detail))
        return pages.page(request, "error", error.status_code, error=problem)

    return app
