"""What decodes speculatively behind its proxy, as the agent sees it."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter

from agents.host.http.local_http import LocalHttp
from agents.speculation.messages import PlanMessage, SpeculationKnobs, SpeculationStats
from agents.target.side import SignalSample, WorkloadChanged
from tuner.core import ActuationError, Plan, Setting, Signal, Space, render_setting, setting_key

CHANGE_S = 900.0
"""A change may wait for what the server before last still has, and read a large model from a disk."""
SIGNAL = "decoding_requests"
PROXY, START_IT = "the speculation proxy", "start it with `jouletune speculation proxy`"

MessageT = TypeVar("MessageT", bound=BaseModel)


class SpeculationClient:
    """A running proxy.

    Every method raises DeviceLost where it does not answer, and ActuationError where the answer is a
    refusal or none that we know.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = LocalHttp(url, PROXY, START_IT)
        self.close = self._http.close

    def knobs(self) -> SpeculationKnobs:
        """Return what can be set, and what is in force."""
        return self._get(SpeculationKnobs, "/knobs")

    def stats(self) -> SpeculationStats:
        """Return what it has done so far."""
        return self._get(SpeculationStats, "/stats")

    def plan(self) -> Plan | None:
        """Return the plan that it follows."""
        return self._get(PlanMessage, "/plan").plan

    def put(self, setting: Setting) -> None:
        """Ask for a setting and wait until it is in force."""
        self._http.call("PUT", "/knobs", dict(setting), CHANGE_S)

    def follow(self, plan: Plan) -> None:
        """Have it follow a plan."""
        body = json.loads(PlanMessage(plan=plan).model_dump_json())  # infinity as a string
        self._http.call("PUT", "/plan", body)

    def _get(self, kind: type[MessageT], path: str) -> MessageT:
        return self._http.parsed(
            TypeAdapter(kind),
            self._http.call("GET", path),
            f"{PROXY}'s",
            f"check that it is the address of {PROXY} of the same release",
        )


class SpeculationActuator:
    """Sets the draft length, or has the proxy follow a plan of it."""

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
        """Return what is in force. Raises ActuationError, DeviceLost."""
        return self._client.knobs().setting

    def apply(self, setting: Setting) -> None:
        """Put a setting in force, which ends a plan.

        Raises:
            UnknownKnob, OutOfRange: it does not fit; nothing was changed.
            ActuationError, DeviceLost: it was refused, or has no effect.
        """
        for name, value in setting.items():
            self._space.knob(name).index(value)
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
        """Return another word after each start. Raises DeviceLost, WorkloadChanged."""
        return self.seen(self._client.stats())

    def seen(self, stats: SpeculationStats) -> str:
        """Return the start that some figures are of. Raises DeviceLost, WorkloadChanged."""
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
        """Hand over a plan; False where it is refused. Raises ActuationError, DeviceLost."""
        drafts = {row.setting.get("draft") for row in plan.rows}
        if not self._per_request or plan.by != SIGNAL or len(drafts) > 1:
            return False
        self._client.follow(plan)
        return True

    def followed(self) -> Plan | None:
        """Return the plan in force, None where a setting is. Raises ActuationError, DeviceLost."""
        return self._client.plan()


class DecodingSignal:
    """How many requests are decoding."""

    def __init__(
        self, client: SpeculationClient, actuator: SpeculationActuator, *, askable: bool
    ) -> None:
        self.signal = Signal(SIGNAL, askable=askable)
        self._client = client
        self._actuator = actuator

    def read(self) -> SignalSample:
        """Return it as it is now. Raises DeviceLost, WorkloadChanged."""
        stats = self._client.stats()
        return SignalSample(float(stats.decoding), stats.decoding_s, self._actuator.seen(stats))
