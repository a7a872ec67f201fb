"""Measures the proxy's latency: the same requests alternately through it and directly."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from urllib.parse import urlsplit

from agents.speculation.client import SpeculationClient
from agents.workloads.llama_cpp.dialect import REQUEST_LENGTH
from tuner.core import Clock, DeviceLost, Estimate, MeasurementError, quantile_estimate

ANSWER_S = 60.0
STREAMED = 32
"""Tokens of a streamed request."""


@dataclass(frozen=True, slots=True)
class CostOf:
    """Latencies in ms of one kind of request, direct and through the proxy; `callers` run in parallel."""

    what: str
    callers: int
    requests: int
    direct_p50_ms: float
    direct_p99_ms: float
    through_p50_ms: float
    through_p99_ms: float

    @property
    def p50_ms(self) -> float:
        """The proxy's addition to the median."""
        return self.through_p50_ms - self.direct_p50_ms

    @property
    def p99_ms(self) -> float:
        """The proxy's addition to the 99th percentile."""
        return self.through_p99_ms - self.direct_p99_ms


def proxy_cost(url: str, requests: int, callers: int, clock: Clock) -> list[CostOf]:
    """Send requests of one token, and streamed ones, directly and through the proxy at a URL.

    A caller alternates between the two ways, without speculation, so that both meet the same load.

    Raises:
        DeviceLost, ActuationError: the proxy does not answer.
        MeasurementError: a request failed.
    """
    client = SpeculationClient(url)
    try:
        direct = client.stats().server_url
    finally:
        client.close()
    if not direct:
        raise DeviceLost(
            f"the proxy at {url} has no llama-server ready", hint="wait until it is ready"
        )
    numbers = count()
    costs = []
    for name, tokens in (("one token", 1), (f"stream of {STREAMED} tokens", STREAMED)):
        send = partial(_times, direct, url, tokens, requests // callers, numbers, clock)
        with ThreadPoolExecutor(callers) as pool:
            parts = list(pool.map(lambda _, send=send: send(), range(callers)))
        costs.append(_cost(name, callers, parts))
    return costs


Pairs = list[tuple[float, float]]


def _cost(name: str, callers: int, parts: list[Pairs]) -> CostOf:
    """Return the quantiles of all callers' pairs."""
    pairs = [pair for part in parts for pair in part]
    past, through = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def at(values: list[float], quantile: float) -> float:
        estimate: Estimate = quantile_estimate(values, quantile)
        return estimate.mean

    return CostOf(
        name,
        callers,
        len(pairs),
        at(past, 0.5),
        at(past, 0.99),
        at(through, 0.5),
        at(through, 0.99),
    )


def _times(
    direct: str, url: str, tokens: int, requests: int, numbers: count[int], clock: Clock
) -> Pairs:
    """Return the time in ms of each request directly, and through the proxy."""
    past, through = _connection(direct), _connection(url)
    try:
        pairs = []
        for turn in range(requests):
            # The order alternates, as the second of a pair finds the caches that the first one filled.
            order = (past, through) if turn % 2 else (through, past)
            took = {which: _send(which, tokens, next(numbers), clock) for which in order}
            pairs.append((took[past], took[through]))
        return pairs
    except (OSError, http.client.HTTPException) as error:
        raise MeasurementError(f"a request failed: {error}", hint="measure again") from None
    finally:
        past.close()
        through.close()


def _send(connection: http.client.HTTPConnection, tokens: int, number: int, clock: Clock) -> float:
    """Send one request and return its time in ms. Raises MeasurementError, OSError."""
    request = {"prompt": f"# {number}\n", "n_predict": tokens, "temperature": 0, "ignore_eos": True}
    request |= {"stream": tokens > 1, REQUEST_LENGTH: 0}
    body = json.dumps(request)
    while True:
        began = clock.monotonic()
        reused = connection.sock is not None
        try:
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            break
        except ConnectionError:
            # llama-server closes a kept connection now and then without notice.
            connection.close()
            if not reused:
                raise
    response.read()
    if response.status != 200:
        raise MeasurementError(f"a request was answered with HTTP {response.status}")
    return 1000.0 * (clock.monotonic() - began)


def _connection(url: str) -> http.client.HTTPConnection:
    """Return a connection to a server."""
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)
