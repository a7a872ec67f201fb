"""What every message has in common, and why a request was refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from tuner.bounds import ANSWERED, RECEIVED, Sizes, bounded, redacted, tightened
from tuner.core import Plan, ProtocolMismatch, as_before, refuse_columns

__all__ = [
    "Message",
    "OperatorView",
    "PROTOCOL",
    "Problem",
    "SERVED",
    "SentPlan",
    "Shown",
    "check_protocol",
]

PROTOCOL = 1
SERVED = (PROTOCOL,)
"""Versions this side understands; a second release adds its predecessor."""


def _sent(plan: Plan, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return as_before(handler(plan))


SentPlan = Annotated[Plan, WrapSerializer(_sent), BeforeValidator(refuse_columns)]
"""A plan, without empty fields that release 0.2.0 does not have; one by two signals is refused."""


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
    """What every message has in common. Infinities travel as strings: JSON has none.

    A field that declares no bound has that of `sizes`.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="ignore")
    sizes: ClassVar[Sizes] = RECEIVED

    protocol: int = PROTOCOL

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> Any:  # noqa: ANN401  a core schema
        """Return its schema with a bound for every field."""
        return tightened(handler(source), handler.resolve_ref_schema, cls.sizes)

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Refuse what is too long, or no text, and shorten sentences, before anything is made of it."""
        return bounded(data)


class OperatorView(Message):
    """What the tuner answers operators: as long as the fleet is large."""

    sizes: ClassVar[Sizes] = ANSWERED

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Leave an answer as it is."""
        return data


Shown = Annotated[str, AfterValidator(redacted)]
"""What went wrong, as others than those of this host may read it: the one place that redacts."""


class Problem(Message):
    """Why a request was refused: a machine-readable code, what and where, and the next step."""

    code: str
    message: Shown
    hint: Shown = ""
