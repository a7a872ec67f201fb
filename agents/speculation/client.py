"""The agent's client for a speculative decoder behind its proxy."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter

from agents.host.http.local_http import HttpRefusal, LocalHttp
from agents.speculation.messages import (
    ModelList,
    PlanMessage,
    SpeculationKnobs,
    SpeculationStats,
)
from agents.target.side import SignalSample, WorkloadChanged
from tuner.core import ActuationError, Plan, Setting, Signal, Space, render_setting, setting_key

CHANGE_S = 900.0
"""Timeout of a change: the server before last may still drain, and a large model takes long to load."""
SIGNAL, INSIDE, LENGTH = "decoding_requests", "requests_in_system", "speculation_length"
LLAMA_CPP, LLAMA_OWNER = "llama_cpp", "llamacpp"
"""The names of llama-server: the proxy's, where its drafts are knobs, and its own as a model's owner."""
PROXY, START_IT = "the proxy", "start it with `jouletune workload proxy`"

MessageT = TypeVar("MessageT", bound=BaseModel)


class SpeculationClient:
    """HTTP client of a running proxy.

    Every method raises DeviceLost if the proxy does not answer, and ActuationError if it refuses or
    its answer does not parse.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = LocalHttp(url, PROXY, START_IT)
        self.close = self._http.close

    def knobs(self) -> SpeculationKnobs:
        """Return the knobs, and the current setting."""
        return self._get(SpeculationKnobs, "/knobs")

    def stats(self) -> SpeculationStats:
        """Return the counters since the proxy's start."""
        return self._get(SpeculationStats, "/stats")

    def plan(self) -> Plan | None:
        """Return the plan that the proxy follows."""
        return self._get(PlanMessage, "/plan").plan

    def model(self) -> str:
        """Return the model's name for requests in OpenAI's form; empty: those of llama-server."""
        if self.knobs().name == LLAMA_CPP:
            return ""
        try:
            first = self._get(ModelList, "/v1/models").data[0]
        except HttpRefusal:
            return ""
        return "" if first.owned_by == LLAMA_OWNER else first.id

    def put(self, setting: Setting) -> None:
        """Request a setting, and wait until it is in force."""
        self._http.call("PUT", "/knobs", dict(setting), CHANGE_S)

    def follow(self, plan: Plan) -> None:
        """Have the proxy follow a plan."""
        body = json.loads(PlanMessage(plan=plan).model_dump_json())  # infinity as a string
        self._http.call("PUT", "/plan", body)

    def _get(self, kind: type[MessageT], path: str) -> MessageT:
        """Return the proxy's answer at a path, parsed as `kind`."""
        return self._http.parsed(
            TypeAdapter(kind),
            self._http.call("GET", path),
            f"{PROXY}'s",
            f"check that it is the address of {PROXY} of the same release",
        )


class SpeculationActuator:
    """Set the draft length, or have the proxy follow a plan of draft lengths."""

    def __init__(
        self,
        client: SpeculationClient,
        space: Space,
        version: str,
        *,
        per_request: bool,
    ) -> None:
        self._client = client
        self._space = space
        self._version = version
        self._per_request = per_request
        self._incarnation = ""
        self.close = client.close

    def read(self) -> Setting:
        """Return the setting in force. Raises ActuationError, DeviceLost."""
        return self._client.knobs().setting

    def apply(self, setting: Setting) -> None:
        """Put a setting in force; this ends a plan.

        Raises:
            UnknownKnob, OutOfRange: the setting is not in the space; nothing was changed.
            ActuationError, DeviceLost: the proxy refused the setting, or the setting has no effect.
        """
        self._space.check_named(setting)
        before = self.read()
        requested = {**before, **setting}
        if setting_key(requested) == setting_key(before) and self._client.plan() is None:
            return
        self._client.put(requested)
        now = self.read()
        if setting_key(now) != setting_key(requested):
            raise ActuationError(
                f"the server at {self._client.url} accepted {render_setting(requested)} but uses "
                f"{render_setting(now)}"
            )

    def incarnation(self) -> str:
        """Return an identifier that differs after each start.

        Raises DeviceLost, WorkloadChanged.
        """
        return self.seen(self._client.stats())

    def seen(self, stats: SpeculationStats) -> str:
        """Return the start that these counters belong to. Raises DeviceLost, WorkloadChanged."""
        if stats.incarnation != self._incarnation:
            version = self._client.knobs().version
            if version != self._version:
                raise WorkloadChanged(
                    f"the server at {self._client.url} changed from {self._version} to {version}",
                    hint="restart the agent",
                )
            self._incarnation = stats.incarnation
        return self._incarnation

    def follow(self, plan: Plan) -> bool:
        """Hand over a plan; return False if the proxy refuses it.

        Raises ActuationError, DeviceLost.
        """
        others = [{**row.setting, LENGTH: 0} for row in plan.rows]
        if not self._per_request or plan.by != SIGNAL or any(one != others[0] for one in others):
            return False
        self._client.follow(plan)
        return True

    def followed(self) -> Plan | None:
        """Return the plan in force, or None if a setting is. Raises ActuationError, DeviceLost."""
        return self._client.plan()


class ProxySignal:
    """The number of requests that are decoding (`decoding_requests`), or of all in the server."""

    def __init__(
        self, client: SpeculationClient, actuator: SpeculationActuator, name: str, *, askable: bool
    ) -> None:
        self.signal = Signal(name, askable=askable)
        self._client = client
        self._actuator = actuator

    def read(self) -> SignalSample:
        """Return the current value. Raises DeviceLost, WorkloadChanged."""
        stats = self._client.stats()
        incarnation = self._actuator.seen(stats)
        if self.signal.name == SIGNAL:
            return SignalSample(float(stats.decoding), stats.decoding_s, incarnation)
        return SignalSample(float(stats.inside), stats.in_flight_s, incarnation)
