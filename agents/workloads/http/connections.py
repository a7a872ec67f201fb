"""Check that connections to a service reach the same counters: several at once, in rounds.

In a service of several processes one of them answers each connection. If the processes count
separately, a figure is the share of one process (prometheus_client, "Multiprocess Mode (E.g.
Gunicorn)").
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit, urlunsplit

from agents.host.http.local_http import MOST_ANSWER_BYTES
from agents.host.processes.process_table import ProcessTable
from agents.load.exposition import ACCEPT, Samples
from agents.load.window import OpenWindow
from agents.workloads.http.exposition import Exposition, start_s
from tuner.core import ROUND_OF, Clock, MeasurementError, Reading, Scrapes

LOOK_S = 3.0
"""The longest comparison; a service that answers later is not compared."""
APART_S = 0.004
"""The time between two connections, as one process accepts all that arrive together."""
ROUNDS, LEAST_ROUNDS, MOST_TIMES = 4, 2, 2


class ConnectionsWindow(OpenWindow):
    """An open window; the counters of several connections are compared once, at its end."""

    def __init__(self, exposition: Exposition, clock: Clock) -> None:
        self._exposition, self._clock = exposition, clock

    def _shown(self) -> Reading:
        """Return an empty reading."""
        return Reading()

    def _ended(self) -> Reading:
        """Return the counters of several connections, for the rules to compare."""
        url, until = self._exposition.url, self._clock.monotonic() + LOOK_S
        processes = max(1, len(_serving(urlsplit(url).port or 80)))
        at_once, rounds, why = ROUND_OF * min(MOST_TIMES, processes), list[list[Samples]](), ""
        try:
            for _ in range(ROUNDS):
                rounds.append([])
                rounds[-1].extend(self._round(url, at_once, until))
        except (OSError, HTTPException, MeasurementError) as error:
            if len(rounds) <= LEAST_ROUNDS:
                answer = error or type(error).__name__
                why = f"{at_once} connections at once were not answered: {answer}"
        started = frozenset(filter(None, (start_s(one) for answers in rounds for one in answers)))
        counted = tuple(tuple(map(self._exposition.counters, one)) for one in rounds if one)
        fact = Scrapes(url=url, rounds=counted, started=started, processes=processes, why=why)
        return Reading(facts=(fact,))

    def _round(self, url: str, number: int, until: float) -> Iterator[Samples]:
        """Yield the answers to some connections, all opened before the first request is sent.

        Raises OSError, HTTPException, MeasurementError.
        """
        parts = urlsplit(url)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        with ExitStack() as opened:
            lines = [
                opened.enter_context(closing(HTTPConnection(parts.hostname or "", parts.port)))
                for _ in range(number)
            ]
            for line in lines:
                line.timeout = self._left(until)
                line.connect()
                self._clock.sleep(APART_S)
            for line in lines:
                line.request("GET", target, headers={"Accept": ACCEPT, "Connection": "close"})
            for line in lines:
                line.sock.settimeout(self._left(until))
                answer = opened.enter_context(closing(line.getresponse()))
                if answer.status != 200:
                    raise MeasurementError(f"HTTP {answer.status}")
                text = answer.read(MOST_ANSWER_BYTES).decode(errors="replace")
                yield self._exposition.samples(text)

    def _left(self, until: float) -> float:
        """Return the remaining time in s. Raises TimeoutError."""
        if (left_s := until - self._clock.monotonic()) <= 0.0:
            raise TimeoutError(f"within {LOOK_S:g} s")
        return left_s


def _serving(port: int) -> frozenset[int]:
    """Return the processes that listen on a port, without those that only start the others."""
    table = ProcessTable()
    owners = table.owners(port)
    return owners - {stat.parent for pid in owners if (stat := table.stat(pid))}
