"""The common base of all messages, and the refusal of a request."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    model_validator,
)

from tuner.bounds import ANSWERED, RECEIVED, Sizes, bounded, redacted, tightened
from tuner.core import Plan, ProtocolMismatch, refuse_columns

PROTOCOL = 1
SERVED = (PROTOCOL,)
"""Protocol versions that this release serves; a second release adds its predecessor."""


SentPlan = Annotated[Plan, BeforeValidator(refuse_columns)]
"""A plan; one by two signals is refused."""


def check_protocol(protocol: int) -> None:
    """Check that this release serves a protocol version.

    Raises:
        ProtocolMismatch: it does not; the message names the served versions.
    """
    if protocol not in SERVED:
        served = ", ".join(str(v) for v in SERVED)
        raise ProtocolMismatch(
            f"protocol {protocol} is not supported (supported: {served})",
            hint="upgrade the older side to the same release",
        )


M = TypeVar("M", bound="Message")


class Message(BaseModel):
    """The base of every message. JSON has no infinities: they are sent as strings.

    A field without a declared bound gets that of `sizes`.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="ignore")
    sizes: ClassVar[Sizes] = RECEIVED

    protocol: int = PROTOCOL

    @classmethod
    def of(cls: type[M], source: object, /, **others: Any) -> M:  # noqa: ANN401  as declared
        """Return a message with the fields that the source has under the same name, and with `others`."""
        names = cls.model_fields.keys() - {"protocol"}
        alike = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return cls(**alike | others)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> Any:  # noqa: ANN401  a core schema
        """Return the message's schema with a bound on every field."""
        return tightened(handler(source), handler.resolve_ref_schema, cls.sizes)

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Refuse oversized values and invalid text, and shorten sentences, before the message is built."""
        return bounded(data)


class OperatorView(Message):
    """An answer to an operator: its length grows with the fleet."""

    sizes: ClassVar[Sizes] = ANSWERED

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: object) -> object:
        """Return an answer unchanged."""
        return data


Shown = Annotated[str, AfterValidator(redacted)]
"""An error text for readers on other hosts. This is the one place that redacts it."""


class Problem(Message):
    """The refusal of a request: a code for machines, a message with cause and place, and a next step."""

    code: str
    message: Shown
    hint: Shown = ""
