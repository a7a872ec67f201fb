"""Message bodies of the proxy's routes, shared by client and server."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agents.host.http.knob_messages import KnobsReply
from tuner.core import InvalidInput, Role
from tuner.wire import SentPlan


class PlanMessage(BaseModel):
    """A plan and the index of its current row. Infinities travel as strings: JSON has none."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    plan: SentPlan | None = None
    row: int | None = None


class SpeculationKnobs(KnobsReply):
    """The knobs, the current setting, and whether a request can set its own draft length."""

    per_request: bool

    @property
    def length(self) -> str:
        """The name of the knob of the draft length. Raises InvalidInput: there is none."""
        named = [knob.name for knob in self.knobs if knob.role is Role.SPECULATION_LENGTH]
        if not named:
            raise InvalidInput(
                f"{self.name} behind the proxy has no knob for the draft length",
                hint="start the proxy with --knob speculative_tokens=0,2,4, or with --draft",
            )
        return named[0]


class ListedModel(BaseModel):
    """A model of OpenAI's `GET /v1/models`."""

    id: str
    owned_by: str = ""


class ModelList(BaseModel):
    """The answer of `GET /v1/models`."""

    data: tuple[ListedModel, ...] = Field(min_length=1)


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
    cpu_s: float = Field(ge=0.0, allow_inf_nan=False)
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
