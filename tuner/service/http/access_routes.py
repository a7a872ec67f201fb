"""The roles that may call a route, and the route by which an agent gets a token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import AfterValidator

from tuner.bounds import bounded
from tuner.core import AccessRole, Caller, Forbidden
from tuner.service.access import Access
from tuner.service.http.bodies import ThreadedRoute
from tuner.wire import Enrolled, Enrolment, check_protocol

NEXT_STEP = {
    AccessRole.VIEWER: "a viewer's token is read-only; use an operator's token",
    AccessRole.OPERATOR: "use an admin's token (the tuner's own token file "
    "has one); reports of an agent need that agent's token",
    AccessRole.GRID: "a grid token may only send events of the grid (POST /v1/events/grid)",
    AccessRole.AGENT: "use an operator's token; create one with `jouletune token create NAME`",
    AccessRole.ENROL: "put this token into the token file of a new agent; it can only enrol",
}


def only(*roles: AccessRole) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that returns the caller, and refuses every role but these and the admin's."""

    async def check(request: Request) -> Caller:
        """Return the caller. Raises Forbidden: its role may not call the route."""
        caller: Caller = request.state.caller
        if caller.role not in (AccessRole.ADMIN, *roles):
            raise Forbidden(
                f"the {caller.role} token {caller.name} does not allow this",
                hint=NEXT_STEP[caller.role],
            )
        return caller

    return check


Who = Annotated[str, AfterValidator(bounded)]
"""The author that a message names; the author stored is the name of the caller's token."""
FOR_VIEWERS = Depends(only(AccessRole.VIEWER, AccessRole.OPERATOR))
AgentCaller = Annotated[Caller, Depends(only(AccessRole.AGENT))]
EnrollingCaller = Annotated[Caller, Depends(only(AccessRole.ENROL))]


def enrol_routes(access: Access) -> APIRouter:
    """Return the route by which an agent gets its own token."""
    router = APIRouter(route_class=ThreadedRoute)

    @router.post("/enrol")
    def enrol(message: Enrolment, caller: EnrollingCaller) -> Enrolled:
        """Give a new agent its own token, in exchange for an enrolment token."""
        check_protocol(message.protocol)
        return access.enrol(caller, message)

    return router
