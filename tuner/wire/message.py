"""What every message has in common, and why a request was refused."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from tuner.bounds import bounded
from tuner.core import LONGEST_S, Plan, ProtocolMismatch, as_before

__all__ = [
    "Finite",
    "Message",
    "OperatorView",
    "PROTOCOL",
    "Problem",
    "SERVED",
    "Seconds",
    "SentPlan",
    "check_protocol",
]

PROTOCOL = 1
SERVED = (PROTOCOL,)
"""Versions this side understands; a second release adds its predecessor."""
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _sent(plan: Plan, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return as_before(handler(plan))


SentPlan = Annotated[Plan, WrapSerializer(_sent)]
"""A plan. Services and agents that follow one signal get one as they did before there were tables."""
Seconds = Annotated[float, Field(gt=0.0, le=LONGEST_S, allow_inf_nan=False)]
"""A length that a device is instructed to keep: NaN compares with nothing, so a wait for it never ends."""


def check_protocol(protocol: int) -> None:
    """Return quietly when a message of this version is understood.

    Raises:
        ProtocolMismatch: it is not; the message names the versions that are.
    """
    if protocol not in SERVED:
        served = ", ".join(str(v) for v in SERVED)
        raise ProtocolMismatch(
            f"protocol {protocol} is not supported (supported: {served})",
            hint="upgrade the older side to the same release",
        )


class Message(BaseModel):
    """What every message has in common. Infinities travel as strings: JSON has none."""

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="ignore")

    protocol: int = PROTOCOL

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Refuse what is too long, or no text, and shorten sentences, before anything is made of it."""
        return bounded(data)


class OperatorView(Message):
    """What the tuner answers operators: as long as the fleet is large."""

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Leave an answer as it is."""
        return data


class Problem(Message):
    """Why a request was refused: a machine-readable code, what and where, and the next step."""

    code: str
    message: str
    hint: str = ""
