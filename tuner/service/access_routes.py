"""Which callers a route is for, and the routes that make and revoke tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import TypeAdapter

from tuner.core import AccessRole, AuditEntry, Caller, Forbidden
from tuner.service.access import Access
from tuner.service.answers import many
from tuner.service.bodies import ThreadedRoute
from tuner.wire import (
    Change,
    ConstraintChange,
    Decision,
    Enrolled,
    Enrolment,
    NewToken,
    StudyDraft,
    TokenDraft,
    TokenView,
    check_protocol,
)

AnyChange = TypeVar("AnyChange", Change, ConstraintChange, Decision, StudyDraft)

AUDIT = TypeAdapter(list[AuditEntry])
NEXT_STEP = {
    AccessRole.VIEWER: "a viewer only looks: ask with an operator's token",
    AccessRole.OPERATOR: "this takes an admin's token, as the tuner's own token file has; what an agent "
    "tells, the agent's own",
    AccessRole.AGENT: "ask with an operator's token, made by `jouletune token create NAME`",
    AccessRole.ENROL: "put it into the token file of a new agent: enrolling is all it is for",
}


def only(*roles: AccessRole) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that gives the caller and refuses all roles but these and the admin's."""

    async def check(request: Request) -> Caller:
        caller: Caller = request.state.caller
        if caller.role not in (AccessRole.ADMIN, *roles):
            raise Forbidden(
                f"the {caller.role} token {caller.name} does not allow this",
                hint=NEXT_STEP[caller.role],
            )
        return caller

    return check


FOR_VIEWERS = Depends(only(AccessRole.VIEWER, AccessRole.OPERATOR))
OperatorCaller = Annotated[Caller, Depends(only(AccessRole.OPERATOR))]
AgentCaller = Annotated[Caller, Depends(only(AccessRole.AGENT))]
EnrollingCaller = Annotated[Caller, Depends(only(AccessRole.ENROL))]


def signed(change: AnyChange, caller: Caller) -> AnyChange:
    """Return a change with who made it: the token's name, whatever the change says itself."""
    return change.model_copy(update={"who": caller.name})


def enrol_routes(access: Access) -> APIRouter:
    """Return the route by which an agent gets a token of its own."""
    router = APIRouter(route_class=ThreadedRoute)

    @router.post("/enrol")
    def enrol(message: Enrolment, caller: EnrollingCaller) -> Enrolled:
        """Become an agent."""
        check_protocol(message.protocol)
        return access.enrol(caller, message)

    return router


def admin_routes(access: Access) -> APIRouter:
    """Return the routes by which an admin makes, lists and revokes tokens, and reads the audit log."""
    router = APIRouter(dependencies=[Depends(only())], route_class=ThreadedRoute)

    @router.get("/audit", response_model=list[AuditEntry])
    def audit(
        who: str | None = None, last: Annotated[int, Query(ge=1, le=10_000)] = 100
    ) -> Response:
        """List the latest changes and refusals, oldest first."""
        body = AUDIT.dump_json(list(access.audit(last, who)))
        return Response(body, media_type="application/json")

    @router.post("/tokens", status_code=201)
    def create(draft: TokenDraft) -> NewToken:
        """Make a token; it is shown this once."""
        check_protocol(draft.protocol)
        return access.create(draft)

    @router.get("/tokens", response_model=list[TokenView])
    def tokens() -> Response:
        """List tokens, without themselves."""
        return many(access.tokens())

    @router.delete("/tokens/{name}", status_code=204)
    def revoke(name: str) -> None:
        """Revoke a token."""
        access.revoke(name)

    return router
