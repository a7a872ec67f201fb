"""The tuners of one database. Each stores a report about itself, which every tuner can read."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from dataclasses import dataclass, field
from datetime import timedelta

import psutil

from tuner.core import TunerReplica
from tuner.study.loop import Loop

log = logging.getLogger(__name__)

TELL_S = 10
"""Seconds between two reports of a tuner."""
SILENT = timedelta(seconds=45)
"""A tuner without a report for this long has ended, or does not reach the database."""
FORGOTTEN = timedelta(hours=1)


def mark_of(token: str) -> str:
    """Return a mark that differs for different token files: 16 bits, too few to guess a token by."""
    return hmac.new(token.encode(), b"jouletune replica", hashlib.sha256).hexdigest()[:4]


@dataclass(frozen=True)
class Roll:
    """Reports this tuner to the other tuners of its database."""

    loop: Loop
    host: str
    version: str
    token: str
    process: psutil.Process = field(default_factory=psutil.Process)
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    _began: list[TunerReplica] = field(default_factory=list, repr=False)

    def tell(self) -> None:
        """Store this tuner's report. Raises StoreError."""
        store, now = self.loop.store, self.loop.now()
        replica = TunerReplica(
            id=self.id,
            host=self.host,
            version=self.version,
            started_at=self._began[0].started_at if self._began else now,
            seen_at=now,
            leads=store.bus.leads(),
            bus_lag_s=store.bus.lag_s(),
            agents=self.loop.presence.protocols(),
            token_mark=mark_of(self.token),
            cpu_s=sum(self.process.cpu_times()[:2]),
            memory_bytes=self.process.memory_info().rss,
        )
        store.replicas.tell(replica)
        if not self._began:
            self._began.append(replica)
            self._warn(replica)

    def _warn(self, own: TunerReplica) -> None:
        """Log each live tuner of the database that has a different token file."""
        others = [r for r in self.loop.store.replicas.list() if r.id != own.id]
        for other in others:
            if own.seen_at - other.seen_at < SILENT and other.token_mark != own.token_mark:
                log.warning(
                    "event=other_token the tuner %s on %s has a different token file, "
                    "so an admin's token works on one replica only; copy the file to both",
                    other.id,
                    other.host,
                )
