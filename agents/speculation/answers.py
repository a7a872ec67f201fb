"""HTTP answers shared by the engine and the proxy: their knobs, and the plan that they follow."""

from __future__ import annotations

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from agents.host.http.http_answers import json_of, message_answer
from agents.host.http.knob_messages import knobs_reply
from agents.speculation.messages import PlanMessage, SpeculationKnobs
from tuner.core import InvalidInput, Plan, Setting, Space, first_fault


def knobs_answer(
    name: str, version: str, space: Space, setting: Setting, *, per_request: bool
) -> Response:
    """Return the knobs, the current setting, and whether a request can set its own draft length."""
    reply = knobs_reply(name, version, space, setting).model_dump()
    return message_answer(SpeculationKnobs(**reply, per_request=per_request))


def plan_answer(plan: Plan | None, row: int | None) -> Response:
    """Return the plan that is followed, if any, and the index of its current row."""
    return message_answer(PlanMessage(plan=plan, row=row))


async def plan_of(request: Request) -> Plan:
    """Parse the plan in a request's body. Raises InvalidInput, HTTPException."""
    try:
        plan = PlanMessage.model_validate(await json_of(request)).plan
    except ValidationError as error:
        raise InvalidInput(f"this is not a plan: {first_fault(error)}") from None
    if plan is None:
        raise InvalidInput("the body has no plan", hint='send {"plan": {…}}')
    return plan
