"""The workload contract as its caller sees it: typed answers, and our errors for everything else."""

from __future__ import annotations

from typing import TypeVar

import httpx
from pydantic import BaseModel, Field, ValidationError

from tuner.core import ActuationError, Cost, DeviceLost, Knob, Part, Role, Setting, Space, Value

ANSWER_S = 10.0
CHANGE_S = 180.0
"""A change may start processes."""


class CostReply(BaseModel):
    """What changing a knob takes."""

    seconds: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    restart: bool = False


class KnobReply(BaseModel):
    """One knob."""

    name: str
    values: tuple[Value, ...]
    default: Value
    cost: CostReply = CostReply()
    role: Role = Role.UNKNOWN


class KnobsReply(BaseModel):
    """The answer of `GET /knobs`."""

    name: str = Field(min_length=1)
    version: str
    knobs: tuple[KnobReply, ...] = Field(min_length=1)
    only: tuple[dict[str, Value], ...] = ()
    setting: dict[str, Value]

    def space(self) -> Space:
        """Return the knobs as a space. Raises InvalidInput where they make none."""
        knobs = tuple(
            Knob(
                k.name,
                k.values,
                k.default,
                Part.WORKLOAD,
                Cost(seconds=k.cost.seconds, restart=k.cost.restart),
                k.role,
            )
            for k in self.knobs
        )
        return Space(knobs, self.only)


class StatsReply(BaseModel):
    """The answer of `GET /stats`; what has a default may be left out."""

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

    Every method raises DeviceLost where it does not answer, and ActuationError where the answer is
    a refusal or not in the contract.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        # Loopback must not go through a proxy that the environment names.
        self._client = httpx.Client(base_url=url, timeout=ANSWER_S, trust_env=False)
        self.close = self._client.close

    def knobs(self) -> KnobsReply:
        """Return the knobs and what is in force."""
        return self._parsed(KnobsReply, self._call("GET", "/knobs"))

    def stats(self, inside: int | None = None, within_s: float = 0.0) -> StatsReply:
        """Return what the server has done so far; where it can, once so many requests are in it."""
        asked = "" if inside is None else f"?inside={inside}&within_s={within_s:g}"
        return self._parsed(StatsReply, self._call("GET", f"/stats{asked}"))

    def put(self, setting: Setting) -> None:
        """Ask for a setting and wait until it is in force."""
        self._call("PUT", "/knobs", dict(setting), CHANGE_S)

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Value] | None = None,
        within_s: float = ANSWER_S,
    ) -> httpx.Response:
        try:
            response = self._client.request(method, path, json=body, timeout=within_s)
        except httpx.TimeoutException:
            raise ActuationError(
                f"the workload at {self.url} did not answer {method} {path} within {within_s:g} s",
                hint="see its log",
            ) from None
        except httpx.TransportError as error:
            raise DeviceLost(
                f"the workload at {self.url} does not answer: {error}",
                hint="start it again, or see why it ended in its log",
            ) from None
        if response.status_code != 200:
            raise ActuationError(
                f"the workload at {self.url} refused {method} {path} with HTTP "
                f"{response.status_code}: {_reason(response)}"
            )
        return response

    def _parsed(self, model: type[ReplyT], response: httpx.Response) -> ReplyT:
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "the body"
            raise ActuationError(
                f"the answer of {self.url}{response.request.url.path} is not in the workload "
                f"contract: {where}: {first['msg']}",
                hint="the contract is at the top of agents/workloads/served/__init__.py",
            ) from None


def _reason(response: httpx.Response) -> str:
    """Return the message of an error in the contract, else the beginning of the body."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return response.text[:200]
