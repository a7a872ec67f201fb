"""The text server: `python -m tests.engines.text.serve --port 0`.

It trains its models at first use, which takes minutes, and shows the progress. When it is ready it
writes one line of JSON to its standard output: `{"ready": true, "url": ..., "pid": ...}`. Loopback
only.

| route | what it does |
|---|---|
| `POST /completion`, `/generate` | completes a prompt, streamed where asked |
| `GET`, `PUT /knobs` | what can be set, and what is in force; setting ends a plan |
| `GET`, `PUT`, `DELETE /plan` | the table by requests decoding, which every step goes by |
| `GET /stats`, `/metrics` | what was done since the start, as JSON and for Prometheus |
| `GET /prompts?count=64&seed=0` | held-out prompts for a load; `kind=noise` for what no draft foretells |
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import socket
import sys
import time
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from agents.host.http.serving import (
    HANDLERS,
    LOOPBACK,
    end_by_signal,
    end_with_stdin,
    listening,
    quiet_server,
    tell_ready,
)
from tests.engines.text.api import TextApi
from tests.engines.text.decoding import Decoder
from tests.engines.text.engine import TextEngine
from tests.engines.text.opening import open_decoder, open_models, version
from tests.engines.text.recipe import TrainingRecipe, default_cache
from tests.engines.text.training import ShownProgress
from tuner import process_memory
from tuner.core import TuningError
from tuner.process_memory import uncollected


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return max(time.process_time(), used.ru_utime + used.ru_stime)


async def _serve(decoder: Decoder, listener: socket.socket) -> None:
    engine = TextEngine(decoder)
    api = TextApi(engine, version(decoder), _cpu_s)
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])
    server = quiet_server(
        Starlette(routes=api.routes(), middleware=[guard], exception_handlers=HANDLERS)
    )
    engine.start()
    try:
        tell_ready(listener)
        with uncollected():
            await server.serve(sockets=[listener])
    finally:
        await asyncio.to_thread(engine.close)


def _opened(options: argparse.Namespace) -> Decoder:
    if options.models is not None:
        return open_models(options.models)
    return open_decoder(TrainingRecipe(seed=options.seed), options.cache, ShownProgress())


def main() -> int:
    """Serve until SIGTERM, SIGINT or, with an option, the end of standard input."""
    parser = argparse.ArgumentParser(description="A small language model behind HTTP, to be tuned.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--seed", type=int, default=0, help="of what is trained")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="of trained models")
    parser.add_argument(
        "--models", type=Path, help="a folder of trained models, which are served as they are"
    )
    parser.add_argument(
        "--while-stdin-open", action="store_true", help="end with whoever holds the other end"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    process_memory.keep()
    try:
        with listening(options.port) as listener:
            if options.while_stdin_open:
                end_with_stdin()
            # A signal ends the training at once: the written files are complete.
            decoder = _opened(options)
            end_by_signal()
            asyncio.run(_serve(decoder, listener))
    except TuningError as error:
        sys.stderr.write(f"cannot serve text: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
