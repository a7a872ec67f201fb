"""The proxy's own routes beside the engine's: knobs, plan and figures."""

from __future__ import annotations

import secrets
import time
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from agents.host.http.http_answers import HANDLERS, object_of
from agents.speculation.answers import knobs_answer, plan_answer, plan_of
from agents.workloads.engine.control import EngineControl
from agents.workloads.engine.figures import SpeculationCounters
from agents.workloads.engine.forward import Forwarder
from tuner.core import MeasurementError


class ProxyApi:
    """The routes `/knobs`, `/plan` and `/stats`.

    `GET` and `PUT /knobs` are as in the workload contract. `PUT /plan` takes `{"plan": …}`, a plan by
    `decoding_requests` in the JSON form of `tuner.core.Plan` (`{"by": …, "rows": [{"below": 2.5,
    "setting": {…}}, …]}`, infinity as a string); `GET /plan` returns it with its current row; `DELETE
    /plan` ends it. `GET /stats` returns totals since the proxy's start, which never decrease, and the
    current `inside` and `decoding`.
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

    async def plan(self, request: Request) -> Response:
        """Return the followed plan, if any, and the index of its current row."""
        return self._plan()

    async def follow(self, request: Request) -> Response:
        """Follow a plan."""
        self._control.follow(await plan_of(request))
        return self._plan()

    async def unfollow(self, request: Request) -> Response:
        """End the plan."""
        self._control.unfollow()
        return self._plan()

    async def stats(self, request: Request) -> Response:
        """Return the counters since the proxy's start."""
        servers = self._control.servers
        metrics = ""
        try:
            self._counters = await servers.counters()
        except MeasurementError as error:
            metrics = str(error)
        cpu_s = servers.cpu_s()
        return JSONResponse(
            {
                "incarnation": self._incarnation,
                # The proxy's CPU time is a cost of serving.
                "cpu_s": None if cpu_s is None else cpu_s + time.process_time(),
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
        load, totals = self._control.load, self._forwarder.totals
        inside_s, decoding_s, busy_s = load.seconds
        return {
            "items": totals.tokens,
            "failed": load.failed,
            "arrived": load.arrived,
            "inside": load.inside,
            "in_flight_s": inside_s,
            "decoding": load.decoding,
            "decoding_s": decoding_s,
            "decoding_busy_s": busy_s,
            "slots": load.slots,
            "requests": totals.requests,
            "untold": totals.untold,
            "passes": totals.passes,
            "generating_s": totals.generating_s,
            "drafted": totals.drafted,
            "accepted": totals.accepted,
        }

    def _plan(self) -> Response:
        """Return the answer with the plan and its row."""
        return plan_answer(self._control.plan, self._control.row)


def application(control: EngineControl, forwarder: Forwarder) -> Starlette:
    """Return the proxy application over an engine's control."""
    return Starlette(
        routes=[*ProxyApi(control, forwarder).routes(), Mount("/", app=forwarder)],
        exception_handlers=HANDLERS,
    )
