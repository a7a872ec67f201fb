"""Requests to a member of a power budget, and the highest limit that its answers allow."""

from __future__ import annotations

from collections.abc import Mapping

from tests.chaos.theatre import (
    ACQUIRE,
    APPLY,
    FACTORY,
    GPU,
    HELD,
    HOLD,
    READ,
    RELEASE,
    RENEW,
    Client,
    Request,
    pass_s,
)

LIMIT = "gpu.power_limit_w"
FLOOR = {LIMIT: 150}
AT_FLOOR = {**FACTORY, **FLOOR}
LEAVE: Request = {"verb": "leave_budget", "device": GPU}


def cap(revision: int, *steps: tuple[float, float]) -> Request:
    """Return a request for a schedule of caps: seconds from now, and watts."""
    whole = [{"in_s": in_s, "cap_w": watts, "at_most": {LIMIT: watts}} for in_s, watts in steps]
    return {"verb": "cap", "device": GPU, "group": "rack", "revision": revision, "steps": whole}


def limited(request: Request, watts: int) -> Request:
    """Return the request with another power limit."""
    return {**request, "setting": {**HELD, LIMIT: watts}}


MEMBER: tuple[tuple[Request, int], ...] = (
    (cap(1, (0.0, 300)), 300),
    (HOLD, 300),
    (cap(2, (0.0, 300), (5.0, 200)), 300),
    (pass_s(6.0), 300),
    (READ, 200),
    (ACQUIRE, 200),
    (limited(APPLY, 180), 200),
    (cap(3, (0.0, 160)), 160),
    (RENEW, 160),
    (limited(HOLD, 300), 160),
    (limited(HOLD, 160), 160),
    (cap(4, (0.0, 350)), 350),
    (limited(HOLD, 350), 350),
    (RELEASE, 350),
    (LEAVE, 400),
)
"""Each request, and the highest limit that may be in force after it."""


class Witness(Client):
    """Sends a member's requests until the actuator dies, and counts the answers."""

    asked = answered = 0

    def witness(self, scene: tuple[tuple[Request, int], ...]) -> None:
        """Send the requests until the actuator dies."""
        for request, _ in scene:
            self.asked += 1
            if "shift_s" in request:
                self.play((request,))
            else:
                try:
                    self.ask(request)
                except ConnectionError:
                    return
            self.answered += 1

    def most(self, scene: tuple[tuple[Request, int], ...]) -> int:
        """Return the highest limit that may be in force: a request without an answer may have been carried
        out.
        """
        after = [400, *(watts for _, watts in scene)]
        return max(after[self.answered], after[self.asked])


def wrong(values: Mapping[str, object], most: int) -> str:
    """Return what is wrong with a device of a budget; empty if nothing is."""
    limit = values[LIMIT]
    assert isinstance(limit, int)
    return f"at {limit} W, {most} W may be in force" if limit > most else ""
