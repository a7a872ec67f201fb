"""Sessions of browsers: a signed cookie that names a token, without its secret; limits on rates."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from tuner.core import Busy, Caller, Now, RateLimited, Unauthorised
from tuner.service.access import ADMIN, Access

MOST_CALLERS = 10_000
"""The most callers with a bucket; the caller idle for longest is forgotten first."""
COOKIE = "jouletune_session"
LASTS = timedelta(hours=12)
FAILURES_PER_S, FAILURES_AT_ONCE = 0.5, 20.0
"""Wrong tokens per address. A right token is accepted even from an address over this limit."""
LOOKUPS_AT_ONCE = 4
"""Threads that look up new tokens: unauthenticated callers cannot use more."""
MOST_LOOKUPS = 256
"""The most look-ups that wait for one of these threads."""
T = TypeVar("T")


@dataclass(slots=True)
class Bucket:
    """A caller's remaining amount `left`, as of the time `at`."""

    left: float
    at: float


class RateLimit:
    """Lets every caller make `per_s` requests a second on average, and `burst` at once (a token bucket).

    Source: https://www.rfc-editor.org/rfc/rfc2697. Safe from many threads.
    """

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str, amount: float = 1.0) -> float:
        """Take an amount from a caller's bucket; return 0, or after how many seconds to retry."""
        with self._lock:
            bucket = self._filled(caller)
            if bucket.left < amount:
                return (amount - bucket.left) / self._per_s
            bucket.left -= amount
            return 0.0

    def _filled(self, caller: str) -> Bucket:
        """Return the caller's bucket, refilled up to now."""
        now = self._clock()
        bucket = self._buckets.pop(caller, None) or Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_s)
        bucket.at = now
        self._buckets[caller] = bucket
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return bucket


class Lookups:
    """Looks up tokens that are not cached, a few at a time. For use in one event loop at a time."""

    def __init__(self) -> None:
        self._limiter: tuple[asyncio.AbstractEventLoop, CapacityLimiter] | None = None
        self._waiting = 0

    async def run(self, look: Callable[[str], T], token: str) -> T:
        """Return the result of a look-up in a worker thread. Raises Busy, and the errors of the look-up."""
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
    """Sessions of one tuner, or of several with the same token file; no session is stored.

    A cookie is signed with the tuner's own token and has a mark of the caller's stored token: revoking
    that token ends its sessions, and a restart does not. `failed` limits guesses.
    """

    access: Access
    token: str
    now: Now
    lookups: Lookups = field(default_factory=Lookups)
    failed: RateLimit = field(
        default_factory=lambda: RateLimit(FAILURES_PER_S, FAILURES_AT_ONCE, time.monotonic)
    )

    def open(self, token: str, address: str) -> str:
        """Return a session's cookie for a token.

        Raises:
            Unauthorised: the token is unknown or no longer valid, or it is a machine's.
            RateLimited: too many wrong tokens came from this address.
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
        """Return the caller that a session's cookie names.

        Raises:
            Unauthorised: the cookie is forged, or its session has ended.
        """
        payload, _, mac = cookie.rpartition(":")
        nobody = Unauthorised("not signed in", hint="sign in again")
        # Checked before any look-up: a forged cookie costs no more than this.
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
        """Return the key that every form of a session must carry, which no other site can compute."""
        return self._mac(f"form:{cookie}")

    def _signed(self, name: str, mark: str) -> str:
        """Return a cookie with its signature."""
        payload = f"{name}:{int((self.now() + LASTS).timestamp())}:{mark}"
        return f"{payload}:{self._mac(f'session:{payload}')}"

    def _mark(self, name: str) -> str:
        """Return a mark of this token; a later token of the same name has another."""
        return self._mac(f"stored:{self.access.stored(name)}")[:16]

    def _mac(self, text: str) -> str:
        """Return the HMAC-SHA256 of a text, with the tuner's token as key."""
        return hmac.new(self.token.encode(), text.encode(), hashlib.sha256).hexdigest()
