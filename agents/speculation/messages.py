"""Message bodies of the proxy's routes, shared by client and server."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agents.host.http.knob_messages import KnobsReply
from tuner.wire import SentPlan


class PlanMessage(BaseModel):
    """A plan and the index of its current row. Infinities travel as strings: JSON has none."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    plan: SentPlan | None = None
    row: int | None = None


class SpeculationKnobs(KnobsReply):
    """The knobs, the current setting, and whether a request can set its own draft length."""

    per_request: bool


class SpeculationStats(BaseModel):
    """Counters since the proxy's start; all but `inside` and `decoding` never decrease.

    `items` are generated tokens. `decoding_s` sums the decoding seconds over requests;
    `decoding_busy_s` counts seconds in which at least one request decoded. `passes` of the target
    model and `generating_s` cover finished answers only. `steps`, `steps_accepted` and
    `accepted_by_position` are the server's own counters of verified drafts; they stay empty if the
    server does not report them (`metrics_missing` gives the reason). `server_url` is the
    llama-server that currently receives requests.
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
    lost: int = Field(default=0, ge=0)
