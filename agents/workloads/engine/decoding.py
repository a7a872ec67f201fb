"""Number of decoding requests, now and over time."""

from __future__ import annotations

from tuner.core import Clock


class DecodingLoad:
    """Count the requests in the servers, and those that are generating tokens.

    A streamed request decodes from its first byte on; one that is not streamed counts from its
    arrival. At most `slots` requests decode at a time: the server queues the others.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._decoding = 0
        self.slots = 0
        """The slots of the active server; 0 if unknown."""
        self.arrived = 0
        self.failed = 0
        self.inside = 0
        self._inside_s = 0.0
        self._decoding_s = 0.0
        self._busy_s = 0.0

    @property
    def decoding(self) -> int:
        """The number of requests that decode now."""
        return min(self._decoding, self.slots or self._decoding)

    def arrive(self) -> None:
        """Count the arrival of a request."""
        self._advance()
        self.arrived += 1
        self.inside += 1

    def begin(self) -> None:
        """Note that a request starts to decode."""
        self._advance()
        self._decoding += 1

    def leave(self, *, decoding: bool, failed: bool) -> None:
        """Count the end of a request. `decoding` is set if it had begun to decode."""
        self._advance()
        self.inside -= 1
        self._decoding -= decoding
        self.failed += failed

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Integrals over time of requests inside and decoding, and the seconds with any decoding."""
        self._advance()
        return self._inside_s, self._decoding_s, self._busy_s

    def _advance(self) -> None:
        """Advance the integrals to now."""
        now = self._clock.monotonic()
        passed, self._at = now - self._at, now
        self._inside_s += passed * self.inside
        self._decoding_s += passed * self.decoding
        self._busy_s += passed * (self.decoding > 0)
