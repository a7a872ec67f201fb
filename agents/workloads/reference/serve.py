"""The reference inference server: `python -m agents.workloads.reference.serve --port 0`.

Speaks the workload contract (`agents/workloads/served/__init__.py`) on loopback. When it is ready
it writes one line of JSON to its standard output: `{"ready": true, "url": ..., "pid": ...}`.

A request costs the front process some 0.15 ms of CPU with Starlette on uvicorn and httptools,
beside 4 to 20 ms for the inference (uvicorn with h11: 0.35 ms; a bare asyncio protocol of our own:
0.08 ms, not worth maintaining a parser for).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import secrets
import socket
import sys
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agents.host.http.knob_messages import knobs_reply
from agents.host.http.serving import (
    HANDLERS,
    LOOPBACK,
    as_object,
    body_of,
    end_by_signal,
    end_with_stdin,
    error_answer,
    listening,
    message_answer,
    parsed_json,
    quiet_server,
    tell_ready,
)
from agents.host.machine import core_breaks
from agents.workloads.reference.allocators import allocators
from agents.workloads.reference.batcher import Unserved
from agents.workloads.reference.catalogue import REFERENCE
from agents.workloads.reference.fleet import Fleet, Switch
from agents.workloads.reference.instance import Recipe
from agents.workloads.reference.slab import inputs
from tuner import process_memory
from tuner.core import InvalidInput, Knob, OutOfRange, Setting, TuningError, Value
from tuner.process_memory import uncollected

LOG = logging.getLogger(__name__)

LONGEST_WAIT_S = 5.0


class Api:
    """The routes of the contract over one fleet."""

    def __init__(self, fleet: Fleet, name: str, revision: str) -> None:
        self._fleet = fleet
        self._name = name
        self._revision = revision
        self._next = 0
        self._incarnation = secrets.token_hex(4)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/infer", self.infer, methods=["POST"]),
            Route("/stats", self.stats, methods=["GET"]),
            Route("/knobs", self.knobs, methods=["GET"]),
            Route("/knobs", self.change, methods=["PUT"]),
        ]

    async def knobs(self, request: Request) -> Response:
        """Return the knobs, and the current setting."""
        fleet = self._fleet
        return message_answer(knobs_reply(self._name, self._revision, fleet.space, fleet.setting))

    async def change(self, request: Request) -> Response:
        """Put knobs in force."""
        body = await _object(request)
        switch = await self._fleet.change(
            {n: _listed(self._fleet.space.knob(n), v) for n, v in body.items()}
        )
        return JSONResponse({"setting": dict(self._fleet.setting)} | _switch(switch))

    async def stats(self, request: Request) -> Response:
        """Return the counters; if requested, once that many requests are inside."""
        fleet, batcher = self._fleet, self._fleet.batcher
        inside = _number(request, "inside")
        if inside is not None:
            within_s = _number(request, "within_s") or 0.0
            await batcher.crowded(math.ceil(inside), min(within_s, LONGEST_WAIT_S))
        return JSONResponse(
            {
                "cpu_s": fleet.cpu_s(),
                "items": batcher.items,
                "failed": batcher.failed,
                "pids": fleet.pids,
                "spare_pids": fleet.spare_pids,
                "resident_bytes": fleet.resident_bytes,
                "serving": len(batcher.instances),
                "incarnation": self._incarnation,
                "arrived": batcher.arrived,
                "batches": batcher.batches,
                "queued": batcher.queued,
                "inside": batcher.inside,
                "in_flight_s": batcher.in_flight_s,
                "switches": fleet.switches,
            }
            | _switch(fleet.last_switch)
        )

    async def infer(self, request: Request) -> Response:
        """Label one synthetic item: the next one, or `{"item": index}`."""
        body = await _object(request)
        item = body.get("item", self._next)
        if isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise InvalidInput(f"an item must be a number >= 0, not {item!r}")
        self._next += 1
        answer = await self._fleet.infer(item)
        if isinstance(answer, Unserved):
            return error_answer(503, answer.code, answer.message)
        return Response(b'{"label": %d}' % answer, media_type="application/json")


def _number(request: Request, name: str) -> float | None:
    """Return a number of the query; None if it is missing. Raises InvalidInput."""
    text = request.query_params.get(name)
    try:
        number = None if text is None else float(text)
    except ValueError:
        number = math.nan
    if number is not None and not 0.0 <= number < math.inf:
        raise InvalidInput(f"{name} must be a number >= 0, not {text!r}")
    return number


def _switch(switch: Switch | None) -> dict[str, Any]:
    """Return a switch as a part of an answer."""
    return {} if switch is None else {"switch": asdict(switch)}


def _listed(knob: Knob, value: Value) -> Value:
    """Return the value as the knob lists it: JSON's true is not 1, but its 1.0 is."""
    if isinstance(value, bool):
        raise OutOfRange(f"knob {knob.name!r} cannot be {value!r}")
    return knob.values[knob.index(value)]


async def _object(request: Request) -> Setting:
    """Return the body as a JSON object; empty without a body."""
    body = await body_of(request)
    return as_object(parsed_json(body)) if body else {}


def _application(fleet: Fleet, name: str, revision: str) -> Starlette:
    """Return the server's ASGI application."""
    return Starlette(
        routes=Api(fleet, name, revision).routes(),
        # The check of the host name prevents DNS rebinding by a web page.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])],
        exception_handlers=HANDLERS,
    )


async def _serve(options: argparse.Namespace, listener: socket.socket) -> None:
    """Start the workers and serve until the end."""
    width = options.width or REFERENCE.width
    recipe = Recipe(REFERENCE, options.seed, width, inputs(REFERENCE, options.seed))
    at_hand = tuple(allocators())
    LOG.info(
        "event=allocators at_hand=%s most_kept_bytes=%d", at_hand, process_memory.MOST_KEPT_BYTES
    )
    cores = tuple(sorted(os.sched_getaffinity(0)))
    fleet = Fleet(cores, recipe, at_hand, breaks=core_breaks(cores))
    revision = f"width {width}, seed {options.seed}, torch {version('torch')}"
    server = quiet_server(_application(fleet, REFERENCE.name, revision))
    if options.while_stdin_open:
        end_with_stdin()
    try:
        await fleet.start()
        tell_ready(listener)
        with uncollected():
            await server.serve(sockets=[listener])
    finally:
        await fleet.close()


def main() -> int:
    """Serve until SIGTERM, SIGINT or, if configured, the end of standard input."""
    parser = argparse.ArgumentParser(description="A model server over HTTP, as a workload to tune.")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and inputs")
    parser.add_argument("--width", type=int, default=0, help="0: the published width")
    parser.add_argument(
        "--while-stdin-open", action="store_true", help="end when the other end of the pipe closes"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    end_by_signal()
    try:
        with listening(options.port) as listener:
            asyncio.run(_serve(options, listener))
    except TuningError as error:
        sys.stderr.write(f"cannot serve {REFERENCE.name}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
