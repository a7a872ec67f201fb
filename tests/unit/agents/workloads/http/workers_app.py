"""A service, as ASGI and as WSGI. Each worker counts apart unless PROMETHEUS_MULTIPROC_DIR is set."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = Histogram("http_request_seconds", "of a request", buckets=(0.001, 0.01, 0.1))
REQUESTS = Counter("http_requests", "answered")


def metrics() -> bytes:
    """Return the counters of this worker or of all workers."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    together = CollectorRegistry()
    MultiProcessCollector(together)  # type: ignore[no-untyped-call]
    return generate_latest(together)


def answer(path: str) -> bytes:
    """Answer /metrics, /config and everything else."""
    if path == "/metrics":
        return metrics()
    if path == "/config":
        return json.dumps({"batch": 1}).encode()
    SECONDS.observe(0.002)
    REQUESTS.inc()
    return b"ok"


def wsgi(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    """Answer a request of Gunicorn's workers."""
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body = answer(environ["PATH_INFO"])
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer a request of uvicorn's workers."""
    while scope["type"] == "lifespan":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
    while (await receive()).get("more_body"):
        pass
    body = answer(scope["path"])
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
