"""An ASGI service whose workers count apart, unless PROMETHEUS_MULTIPROC_DIR is set."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = Histogram("http_request_seconds", "of a request", buckets=(0.001, 0.01, 0.1))
REQUESTS = Counter("http_requests", "answered")


def metrics() -> bytes:
    """Return this worker's counters, or those of all."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    together = CollectorRegistry()
    MultiProcessCollector(together)  # type: ignore[no-untyped-call]
    return generate_latest(together)


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer /metrics, /config and everything else."""
    while scope["type"] == "lifespan":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/metrics":
        body = metrics()
    elif scope["path"] == "/config":
        body = json.dumps({"batch": 1}).encode()
    else:
        SECONDS.observe(0.002)
        REQUESTS.inc()
        body = b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
