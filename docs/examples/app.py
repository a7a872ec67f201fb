"""Serve zlib over HTTP: one knob, `level`, and a latency histogram."""

import os
import zlib

from fastapi import FastAPI, Response
from prometheus_client import Histogram, make_asgi_app

app = FastAPI()
app.mount("/metrics/", make_asgi_app())
TOOK = Histogram("pack_seconds", "Time to pack", buckets=[0.001 * 1.1**n for n in range(50)])
PAGES = [(b"row %d of a page " % n) * 400 + os.urandom(2000) for n in range(50)]
config = {"level": 6}


@app.get("/config")
def read() -> dict[str, int]:
    """Return the current level."""
    return config


@app.put("/config")
def write(new: dict[str, int]) -> dict[str, int]:
    """Set the level."""
    config.update(new)
    return config


@app.post("/pack")
def pack() -> Response:
    """Compress the pages."""
    with TOOK.time():
        packed = zlib.compress(b"".join(PAGES), config["level"])
    return Response(packed)
