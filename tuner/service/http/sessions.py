"""Signed-in browsers: a cookie that says whose token was shown, signed, and without the token."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from tuner.core import Busy, Caller, Now, RateLimited, Unauthorised
from tuner.service.access import ADMIN, Access
from tuner.service.http.rate_limit import RateLimit

COOKIE = "jouletune_session"
LASTS = timedelta(hours=12)
FAILURES_PER_S, FAILURES_AT_ONCE = 0.5, 20.0
"""Per address that brings wrong tokens. Who brings a right one is let in even then."""
LOOKUPS_AT_ONCE = 4
"""Threads that look up new tokens: strangers get no more of them."""
MOST_LOOKUPS = 256
"""How many wait for one of these threads."""

T = TypeVar("T")


class Lookups:
    """Looks up tokens that are not known yet, in their turn. Of one event loop at a time."""

    def __init__(self) -> None:
        self._limiter: tuple[asyncio.AbstractEventLoop, CapacityLimiter] | None = None
        self._waiting = 0

    async def run(self, look: Callable[[str], T], token: str) -> T:
        """Return what a look-up in a worker thread returns. Raises Busy, and what it raises."""
        running = asyncio.get_running_loop()
        if self._limiter is None or self._limiter[0] is not running:
            self._limiter = running, CapacityLimiter(LOOKUPS_AT_ONCE)
        if self._waiting >= MOST_LOOKUPS:
            raise Busy(f"{MOST_LOOKUPS} tokens are being checked", hint="retry in 1 s")
        self._waiting += 1
        try:
            return await to_thread.run_sync(look, token, limiter=self._limiter[1])
        finally:
            self._waiting -= 1


@dataclass(frozen=True)
class Sessions:
    """Sessions of one tuner, or of several with the same token file; nothing is stored.

    The signature is made with the tuner's own token and what is stored of the caller's: revoking that
    token ends its sessions, and no restart does. `failed` bounds who guesses.
    """

    access: Access
    token: str
    now: Now
    lookups: Lookups = field(default_factory=Lookups)
    failed: RateLimit = field(
        default_factory=lambda: RateLimit(FAILURES_PER_S, FAILURES_AT_ONCE, time.monotonic)
    )

    def open(self, token: str, address: str) -> str:
        """Return the cookie for a token.

        Raises:
            Unauthorised: the token is unknown or no longer valid; or it is a machine's.
            RateLimited: too many wrong ones came from this address.
        """
        if hmac.compare_digest(token.encode(), self.token.encode()):
            return self._signed("", "")
        try:
            caller = self.access.caller(token)
            if not caller.reads_pages:
                raise Unauthorised(
                    f"the token {caller.name} has the role {caller.role}",
                    hint="sign in with the token of a person; create one "
                    "with `jouletune token create NAME --role viewer`",
                )
        except Unauthorised:
            if again_s := self.failed.take(address):
                raise RateLimited(
                    "too many wrong tokens from this address",
                    hint=f"retry in {math.ceil(again_s)} s",
                    again_s=again_s,
                ) from None
            raise
        return self._signed(caller.name, self._mark(caller.name))

    def caller(self, cookie: str) -> Caller:
        """Return the signed-in caller.

        Raises:
            Unauthorised: not signed in, or no longer.
        """
        payload, _, mac = cookie.rpartition(":")
        nobody = Unauthorised("not signed in", hint="sign in again")
        # Before anything is looked up: a forged cookie costs no more than this.
        if not hmac.compare_digest(mac.encode(), self._mac(f"session:{payload}").encode()):
            raise nobody
        name, until, mark = payload.split(":")
        if int(until) <= self.now().timestamp():
            raise nobody
        if not name:
            return ADMIN
        if not hmac.compare_digest(mark, self._mark(name)):
            raise nobody
        return self.access.person(name)

    def form_key(self, cookie: str) -> str:
        """Return what the forms of a session have to bring along, which no other site can know."""
        return self._mac(f"form:{cookie}")

    def _signed(self, name: str, mark: str) -> str:
        payload = f"{name}:{int((self.now() + LASTS).timestamp())}:{mark}"
        return f"{payload}:{self._mac(f'session:{payload}')}"

    def _mark(self, name: str) -> str:
        """Return a mark that identifies this token, and no later token of the same name."""
        return self._mac(f"stored:{self.access.stored(name)}")[:16]

    def _mac(self, text: str) -> str:
        return hmac.new(self.token.encode(), text.encode(), hashlib.sha256).hexdigest()
