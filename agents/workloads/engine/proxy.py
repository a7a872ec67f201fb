"""The proxy's own routes beside the engine's: knobs, plan and figures."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from agents.host.http.knob_messages import knobs_reply
from agents.host.http.serving import HANDLERS, json_of, message_answer, object_of
from agents.speculation.messages import PlanMessage, SpeculationKnobs
from agents.workloads.engine.control import EngineControl
from agents.workloads.engine.figures import SpeculationCounters
from agents.workloads.engine.forward import Forwarder
from tuner.core import InvalidInput, MeasurementError, Plan, Setting, Space, first_fault


class ProxyApi:
    """The routes `/knobs`, `/command`, `/plan` and `/stats`.

    `GET` and `PUT /knobs` are as in the workload contract. `POST /command` with a setting returns the
    words `{"command": […]}` that start the engine there without the proxy; it changes nothing. `PUT
    /plan` takes `{"plan": …}`, a plan by `decoding_requests` in the JSON form of `tuner.core.Plan`
    (`{"by": …, "rows": [{"below": 2.5, "setting": {…}}, …]}`, infinity as a string); `GET /plan` returns
    it with its current row; `DELETE /plan` ends it. `GET /stats` returns totals since the proxy's start,
    which never decrease, and the current `inside` and `decoding`.
    """

    def __init__(self, control: EngineControl, forwarder: Forwarder) -> None:
        self._control = control
        self._forwarder = forwarder
        self._incarnation = secrets.token_hex(4)
        self._counters = SpeculationCounters()

    def routes(self) -> list[Route]:
        """Return the routes; the check of the host name prevents DNS rebinding by a web page."""
        guard = [
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])
        ]
        return [
            Route("/knobs", self.knobs, methods=["GET"], middleware=guard),
            Route("/knobs", self.change, methods=["PUT"], middleware=guard),
            Route("/command", self.command, methods=["POST"], middleware=guard),
            Route("/plan", self.plan, methods=["GET"], middleware=guard),
            Route("/plan", self.follow, methods=["PUT"], middleware=guard),
            Route("/plan", self.unfollow, methods=["DELETE"], middleware=guard),
            Route("/stats", self.stats, methods=["GET"], middleware=guard),
        ]

    async def knobs(self, request: Request) -> Response:
        """Return the knobs, and the current setting."""
        control = self._control
        about = (control.name, control.version, control.space, control.setting)
        return knobs_answer(*about, per_request=control.per_request)

    async def change(self, request: Request) -> Response:
        """Put knobs in force."""
        await self._control.apply(await object_of(request))
        return JSONResponse({"setting": dict(self._control.setting)})

    async def command(self, request: Request) -> Response:
        """Return the engine's command line at a setting."""
        return JSONResponse({"command": self._control.command(await object_of(request))})

    async def plan(self, request: Request) -> Response:
        """Return the followed plan, if any, and the index of its current row."""
        return message_answer(PlanMessage(plan=self._control.plan, row=self._control.row))

    async def follow(self, request: Request) -> Response:
        """Follow a plan."""
        self._control.follow(await plan_of(request))
        return await self.plan(request)

    async def unfollow(self, request: Request) -> Response:
        """End the plan."""
        self._control.unfollow()
        return await self.plan(request)

    async def stats(self, request: Request) -> Response:
        """Return the counters since the proxy's start."""
        servers = self._control.servers
        metrics = ""
        try:
            self._counters = await servers.counters()
        except MeasurementError as error:
            metrics = str(error)
        return JSONResponse(
            {
                "incarnation": self._incarnation,
                # The proxy's CPU time is a cost of serving.
                "cpu_s": servers.cpu_s() + time.process_time(),
                "pids": servers.pids,
                **self._requests(),
                "steps": self._counters.steps,
                "steps_accepted": self._counters.accepted,
                "accepted_by_position": self._counters.by_position,
                "metrics_missing": metrics,
                "server_url": "" if servers.active is None else servers.active.url,
                "switches": servers.switches,
                "switch_s": servers.switch_s,
                "restarts": servers.restarts,
                "repeated": self._forwarder.repeated,
                "lost": self._forwarder.lost,
            }
        )

    def _requests(self) -> dict[str, Any]:
        """Return the counters of requests and their answers."""
        load = self._control.load
        inside_s, decoding_s, busy_s = load.seconds
        return {
            **asdict(self._forwarder.totals),
            "failed": load.failed,
            "arrived": load.arrived,
            "inside": load.inside,
            "in_flight_s": inside_s,
            "decoding": load.decoding,
            "decoding_s": decoding_s,
            "decoding_busy_s": busy_s,
            "slots": load.slots,
        }


def knobs_answer(
    name: str, version: str, space: Space, setting: Setting, *, per_request: bool
) -> Response:
    """Return the knobs, the current setting, and whether a request can set its own draft length."""
    reply = knobs_reply(name, version, space, setting).model_dump()
    return message_answer(SpeculationKnobs(**reply, per_request=per_request))


async def plan_of(request: Request) -> Plan:
    """Parse the plan in a request's body. Raises InvalidInput, HTTPException."""
    try:
        plan = PlanMessage.model_validate(await json_of(request)).plan
    except ValidationError as error:
        raise InvalidInput(f"this is not a plan: {first_fault(error)}") from None
    if plan is None:
        raise InvalidInput("the body has no plan", hint='send {"plan": {…}}')
    return plan


def application(control: EngineControl, forwarder: Forwarder) -> Starlette:
    """Return the proxy application over an engine's control."""
    return Starlette(
        routes=[*ProxyApi(control, forwarder).routes(), Mount("/", app=forwarder)],
        exception_handlers=HANDLERS,
    )
