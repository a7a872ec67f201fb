"""An agent's requests to the actuator, one by one."""

from __future__ import annotations

from typing import Any

from tests.chaos.theatre import (
    ACQUIRE,
    APPLY,
    APPLY_NEXT,
    CAP,
    CEILING_HELD,
    CEILING_TRIED,
    CLOSE,
    HOLD,
    LOWER,
    READ,
    RELEASE,
    RENEW,
    TRIED_NEXT,
    Request,
    behind,
    pass_s,
)

HOLD_NEXT: Request = {**HOLD, "setting": TRIED_NEXT}
"""A hold's plan changes its row."""

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
    "a plan that changes its row and back": ((HOLD, HOLD_NEXT, RENEW, HOLD, RELEASE), {}),
    "a hold that runs out": ((HOLD, RENEW, pass_s(2000.0), READ, READ), {}),
    "a setting that the device refuses": (
        (HOLD, ACQUIRE, APPLY, RELEASE),
        {"gpu.power_limit_w": {"clamp": 333}},
    ),
}

HOLD_CEILING: Request = {**HOLD, "setting": CEILING_HELD}
TRY_CEILING: Request = {**APPLY, "setting": CEILING_TRIED}

CAPS: dict[str, tuple[Request, ...]] = {
    "a cap that comes, moves and goes": (
        HOLD_CEILING, behind(cap=CAP), RENEW, behind(cap=CAP - 300), RENEW, behind(), RENEW, RELEASE,
    ),
    "a study that ends while it is hot": (HOLD_CEILING, behind(cap=CAP), RENEW, RELEASE),
    "a study that begins while it is hot": (
        behind(cap=CAP), ACQUIRE, TRY_CEILING, HOLD_CEILING, RELEASE,
    ),
    "another program that lowers a ceiling": (
        HOLD_CEILING, behind(lower=LOWER), RENEW, READ,
    ),
    "a ceiling that another program lowers in a trial": (
        HOLD_CEILING, ACQUIRE, TRY_CEILING, behind(lower=LOWER), pass_s(6.0), READ,
    ),
    "a suspend in a hold, after which all is at its defaults": (
        HOLD_CEILING, pass_s(3600.0), behind(reload="2"), READ, HOLD_CEILING, RELEASE,
    ),
    "a resume that caps": (
        HOLD_CEILING, ACQUIRE, TRY_CEILING, pass_s(40.0), behind(cap=CAP), READ, HOLD_CEILING, RELEASE,
    ),
}  # fmt: skip
"""Changes of a ceiling by the kernel, a suspend or another program between an agent's requests."""
