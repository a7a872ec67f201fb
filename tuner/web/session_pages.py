"""The pages for signing in and out."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from tuner.core import AccessRole, RateLimited, TuningError, Unauthorised
from tuner.service.http.bodies import BoundedRoute
from tuner.service.http.gate import status_of
from tuner.service.http.sessions import COOKIE, LASTS, Sessions
from tuner.web.render import Pages
from tuner.web.requests import Fields, Posted, read_form


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

    @router.post("/logout")
    def sign_out(request: Request, fields: Posted) -> Response:
        """End the session in this browser."""
        read_form(request, fields, sessions, *AccessRole)
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
