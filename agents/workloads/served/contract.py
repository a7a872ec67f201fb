"""Client of the workload contract: typed answers, and our errors for everything else."""

from __future__ import annotations

from typing import TypeVar

import httpx2
from pydantic import BaseModel, Field, TypeAdapter

from agents.host.http.knob_messages import KnobsReply
from agents.host.http.local_http import LocalHttp
from tuner.core import Setting

CHANGE_S = 180.0
"""Timeout in s of a change, which may start processes."""


class StatsReply(BaseModel):
    """The answer of `GET /stats`; fields with a default are optional."""

    cpu_s: float = Field(ge=0.0, allow_inf_nan=False)
    items: int = Field(ge=0)
    failed: int = Field(ge=0)
    pids: tuple[int, ...]
    incarnation: str = ""
    batches: int | None = Field(default=None, ge=0)
    arrived: int | None = Field(default=None, ge=0)
    in_flight_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    inside: int | None = Field(default=None, ge=0)


ReplyT = TypeVar("ReplyT", bound=BaseModel)


class Server:
    """A running server that speaks the contract.

    Every method raises DeviceLost if it does not answer, and ActuationError if the answer is a
    refusal or not in the contract.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        hint = "restart it, or check its log"
        self._http = LocalHttp(url, "the workload", hint)
        self.close = self._http.close

    def knobs(self) -> KnobsReply:
        """Return the knobs and the current setting."""
        return self._parsed(KnobsReply, self._http.call("GET", "/knobs"))

    def stats(self, inside: int | None = None, within_s: float = 0.0) -> StatsReply:
        """Return the counters; if supported, once `inside` requests are in the server."""
        query = "" if inside is None else f"?inside={inside}&within_s={within_s:g}"
        return self._parsed(StatsReply, self._http.call("GET", f"/stats{query}"))

    def put(self, setting: Setting) -> None:
        """Request a setting and wait until it is in force."""
        self._http.call("PUT", "/knobs", dict(setting), CHANGE_S)

    def _parsed(self, model: type[ReplyT], response: httpx2.Response) -> ReplyT:
        """Return a typed response. Raises ActuationError."""
        hint = "the contract is at the top of agents/workloads/served/__init__.py"
        return self._http.parsed(TypeAdapter(model), response, "in the workload contract", hint)
