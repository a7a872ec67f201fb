"""The text server's routes over one engine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agents.host.http.serving import body_of, message_answer, object_of
from agents.speculation.messages import PlanMessage
from agents.workloads.engine.proxy import knobs_answer, plan_of
from tests.engines.text import corpus
from tests.engines.text.completion import Completion, parsed
from tests.engines.text.engine import TextEngine
from tuner.core import InvalidInput

LONGEST_BODY = 1 << 20
MOST_PROMPTS = 4096
KINDS: Mapping[str, Callable[[int, int], list[str]]] = {
    "source": corpus.prompts,
    "noise": corpus.noise,
}


class TextApi:
    """The routes."""

    def __init__(self, engine: TextEngine, version: str, cpu_s: Callable[[], float]) -> None:
        self._engine = engine
        self._version = version
        self._cpu_s = cpu_s
        self._incarnation = secrets.token_hex(4)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/completion", self.complete, methods=["POST"]),
            Route("/generate", self.complete, methods=["POST"]),
            Route("/knobs", self.knobs, methods=["GET"]),
            Route("/knobs", self.change, methods=["PUT"]),
            Route("/plan", self.plan, methods=["GET"]),
            Route("/plan", self.follow, methods=["PUT"]),
            Route("/plan", self.unfollow, methods=["DELETE"]),
            Route("/stats", self.stats, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/prompts", self.prompts, methods=["GET"]),
        ]

    async def complete(self, request: Request) -> Response:
        """Complete a prompt."""
        asked = parsed(await body_of(request, LONGEST_BODY))
        completion = Completion(self._engine, asked)
        if asked.stream:
            return StreamingResponse(completion.events(), media_type="text/event-stream")
        return JSONResponse(await completion.whole())

    async def knobs(self, request: Request) -> Response:
        """Return the knobs, and the setting in force."""
        engine = self._engine
        about = ("text", self._version, engine.space, engine.setting)
        return knobs_answer(*about, per_request=True)

    async def change(self, request: Request) -> Response:
        """Put knobs in force."""
        self._engine.apply(await object_of(request))
        return JSONResponse({"setting": dict(self._engine.setting)})

    async def plan(self, request: Request) -> Response:
        """Return the followed plan, if any, and its current row."""
        plan, row = self._engine.followed
        return message_answer(PlanMessage(plan=plan, row=row))

    async def follow(self, request: Request) -> Response:
        """Follow a plan."""
        self._engine.follow(await plan_of(request))
        return await self.plan(request)

    async def unfollow(self, request: Request) -> Response:
        """End the plan."""
        self._engine.unfollow()
        return await self.plan(request)

    async def stats(self, request: Request) -> Response:
        """Return the totals of the engine."""
        return JSONResponse(self._stats())

    async def metrics(self, request: Request) -> Response:
        """Return the totals for Prometheus."""
        return Response(exposition(self._stats()), media_type="text/plain; version=0.0.4")

    async def prompts(self, request: Request) -> Response:
        """Return prompts for a load."""
        query = request.query_params
        count, seed = (
            _count(query.get(name), name, at) for name, at in (("count", 64), ("seed", 0))
        )
        kind = query.get("kind", "source")
        if kind not in KINDS:
            raise InvalidInput(f"there are no {kind!r} prompts", hint=f"one of {', '.join(KINDS)}")
        return JSONResponse(KINDS[kind](min(count, MOST_PROMPTS), seed))

    def _stats(self) -> dict[str, Any]:
        totals, (inside, decoding) = self._engine.totals, self._engine.inside
        return {
            "incarnation": self._incarnation,
            "cpu_s": self._cpu_s(),
            "pids": [os.getpid()],
            "items": totals.tokens,
            "failed": totals.failed,
            "arrived": totals.arrived,
            "inside": inside,
            "in_flight_s": totals.decoding_s,
            "decoding": decoding,
            "decoding_s": totals.decoding_s,
            "decoding_busy_s": totals.step_s,
            "slots": self._engine.slots,
            "requests": totals.requests,
            "untold": 0,
            "passes": totals.passes,
            "generating_s": totals.decoding_s,
            "drafted": totals.drafted,
            "accepted": totals.accepted,
            "steps": totals.drafts,
            "steps_accepted": totals.accepted,
            "accepted_by_position": totals.by_position,
            "engine_steps": totals.steps,
            "verify_s": totals.verify_s,
            "draft_s": totals.draft_s,
            "draft_positions": totals.draft_positions,
            "near_ties": totals.near_ties,
            "switches": 0,
            "switch_s": 0.0,
            "restarts": 0,
            "repeated": 0,
        }


GAUGES = ("inside", "decoding", "slots")
TOLD = ("items", "failed", "arrived", "requests", "passes", "drafted", "accepted", "steps", "engine_steps",
        "verify_s", "draft_s", "decoding_s", "near_ties", "cpu_s", *GAUGES)  # fmt: skip


def exposition(stats: Mapping[str, Any]) -> str:
    """Return totals in Prometheus' text format, accepted tokens also by their position in the draft."""
    lines = []
    for name in TOLD:
        kind, suffix = ("gauge", "") if name in GAUGES else ("counter", "_total")
        unit = f"{name.removesuffix('_s')}_seconds" if name.endswith("_s") else name
        metric = f"text_engine_{unit}{suffix}"
        lines += [f"# TYPE {metric} {kind}", f"{metric} {stats[name]}"]
    metric = "text_engine_accepted_at_position_total"
    lines.append(f"# TYPE {metric} counter")
    for position, count in enumerate(stats["accepted_by_position"]):
        lines.append(f'{metric}{{position="{position}"}} {count}')
    return "\n".join(lines) + "\n"


def _count(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"{name} is a whole number from 0 on, not {text!r}")
    return int(text)
