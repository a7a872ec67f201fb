"""The bodies of the proxy's routes, as both of their ends see them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agents.host.http.knob_messages import KnobsReply
from tuner.core import Plan


class PlanMessage(BaseModel):
    """A plan, and its row of the moment. Infinities travel as strings: JSON has none."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    plan: Plan | None = None
    row: int | None = None


class SpeculationKnobs(KnobsReply):
    """What can be set, what is in force, and whether a request can be given its length."""

    per_request: bool


class SpeculationStats(BaseModel):
    """What was done since the proxy's start; nothing but `inside` and `decoding` ever decreases.

    `items` are tokens made. `decoding_s` adds up over requests the seconds that they decoded,
    `decoding_busy_s` counts those in which any did. `passes` of the target and `generating_s` are those
    of finished answers; `steps`, `steps_accepted` and `accepted_by_position` are the server's own
    counters of verified drafts, and stay empty where it tells none (`metrics_missing` says why).
    `server_url` is the llama-server that requests go to now.
    """

    incarnation: str = Field(min_length=1)
    cpu_s: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    pids: tuple[int, ...] = ()
    items: int = Field(ge=0)
    failed: int = Field(ge=0)
    arrived: int = Field(ge=0)
    inside: int = Field(ge=0)
    in_flight_s: float = Field(ge=0.0, allow_inf_nan=False)
    decoding: int = Field(ge=0)
    decoding_s: float = Field(ge=0.0, allow_inf_nan=False)
    decoding_busy_s: float = Field(ge=0.0, allow_inf_nan=False)
    slots: int = Field(ge=0)
    requests: int = Field(ge=0)
    untold: int = Field(ge=0)
    passes: int = Field(ge=0)
    generating_s: float = Field(ge=0.0, allow_inf_nan=False)
    drafted: int = Field(ge=0)
    accepted: int = Field(ge=0)
    steps: int = Field(ge=0)
    steps_accepted: int = Field(ge=0)
    accepted_by_position: tuple[int, ...] = ()
    metrics_missing: str = ""
    server_url: str = ""
    switches: int = Field(ge=0)
    switch_s: float = Field(ge=0.0, allow_inf_nan=False)
    restarts: int = Field(ge=0)
    repeated: int = Field(ge=0)
