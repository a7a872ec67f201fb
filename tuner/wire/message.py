"""The common base of all messages, and the refusal of a request."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, ParamSpec, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    model_validator,
)

from tuner.bounds import ANSWERED, RECEIVED, Sizes, bounded, redacted, tightened
from tuner.core import InvalidInput, Plan, ProtocolMismatch, first_fault, refuse_columns

PROTOCOL = 1
MOST_ORDER_BYTES = 1024 * 1024
"""The most bytes of an order, and of a device: it may list the combinations of a measured table."""
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


P = ParamSpec("P")
M = TypeVar("M", bound="Message")


class Message(BaseModel):
    """The base of every message. JSON has no infinities: they are sent as strings.

    A field without a declared bound gets that of `sizes`; the whole has at most `most_bytes` as JSON.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", frozen=True, extra="ignore")
    sizes: ClassVar[Sizes] = RECEIVED
    most_bytes: ClassVar[int] = 256 * 1024

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


def readable(compose: Callable[P, M]) -> Callable[P, M]:
    """Wrap the composition of a message: it is read as its receiver will read it, before it is sent.

    A receiver cannot answer a message that it cannot read, and its sender would send it for ever.
    The wrapped function raises InvalidInput if it would be refused, or cannot be composed.
    """

    @functools.wraps(compose)
    def composed(*args: P.args, **named: P.kwargs) -> M:
        try:
            message = compose(*args, **named)
            content = message.model_dump_json().encode()
            type(message).model_validate_json(content)
            if len(content) > message.most_bytes:
                raise InvalidInput(f"it has more than {message.most_bytes} bytes")
        except InvalidInput:
            raise
        except (ValueError, ArithmeticError) as error:
            raise InvalidInput(first_fault(error)) from None
        return message

    return composed


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
