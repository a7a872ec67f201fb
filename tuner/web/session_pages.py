"""Signing in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tuner.core import AccessRole, RateLimited, Unauthorised
from tuner.service.gate import status_of
from tuner.service.sessions import COOKIE, LASTS, Sessions
from tuner.web.render import Pages
from tuner.web.requests import posted, read_form


def session_pages(pages: Pages, sessions: Sessions, *, secure: bool) -> APIRouter:
    """Return the routes by which a browser's session begins and ends."""
    router = APIRouter()

    @router.get("/login")
    def ask(request: Request) -> Response:
        """Ask for a token."""
        back = request.query_params.get("next", "/")
        return pages.page(request, "login", back=_ours(back), error=None)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        """Begin a session."""
        fields = await posted(request)
        token, back = (next(iter(fields.get(name, ())), "") for name in ("token", "next"))
        address = request.client.host if request.client else ""
        try:
            cookie = sessions.open(token.strip(), address)
        except (Unauthorised, RateLimited) as error:
            status = status_of(error)
            return pages.page(request, "login", status, back=_ours(back), error=error)
        answer = RedirectResponse(_ours(back), status_code=303)
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=int(LASTS.total_seconds()),
            httponly=True,
            samesite="lax",
            secure=secure,
        )
        return answer

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:
        """End a session in this browser."""
        await read_form(request, sessions, *AccessRole)
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return router


def _ours(back: str) -> str:
    """Return a path of ours, whatever a link says."""
    return back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"
