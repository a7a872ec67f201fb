"""What an agent asks of the actuator, request by request."""

from __future__ import annotations

from typing import Any

from tests.chaos.theatre import (
    ACQUIRE,
    APPLY,
    APPLY_NEXT,
    CLOSE,
    HOLD,
    READ,
    RELEASE,
    RENEW,
    Request,
    pass_s,
)

SCRIPTS: dict[str, tuple[tuple[Request, ...], dict[str, Any]]] = {
    "a trial, renewed and released": ((ACQUIRE, APPLY, RENEW, RELEASE), {}),
    "two trials over a hold": (
        (ACQUIRE, APPLY, HOLD, ACQUIRE, APPLY_NEXT, RENEW, HOLD, RELEASE),
        {},
    ),
    "a trial that is not renewed": ((HOLD, ACQUIRE, APPLY, pass_s(6.0), READ, READ, RELEASE), {}),
    "an agent that is gone": (
        (HOLD, ACQUIRE, APPLY, CLOSE, READ, pass_s(25.0), READ, READ),
        {},
    ),
    "a hold that runs out": ((HOLD, RENEW, pass_s(2000.0), READ, READ), {}),
    "a setting that the device refuses": (
        (HOLD, ACQUIRE, APPLY, RELEASE),
        {"gpu.power_limit_w": {"clamp": 333}},
    ),
}
