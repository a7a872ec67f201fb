"""Functions with which our own servers listen on loopback, report that they are ready, and end."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from tuner.core import InvalidInput

LOOPBACK = "127.0.0.1"
END_S = 5


def listening(port: int) -> socket.socket:
    """Return a socket that listens on a loopback port; port 0 chooses a free one. Raises InvalidInput."""
    # The protocol is explicit: without it asyncio does not recognize TCP and leaves Nagle's algorithm
    # on, which adds up to 40 ms to latencies.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise InvalidInput(
            f"cannot listen on {LOOPBACK}:{port}: {error}", hint="choose another --port"
        ) from None
    return listener


def quiet_server(application: Starlette, end_s: int = END_S) -> uvicorn.Server:
    """Return a server that logs no requests and adds no headers.

    After a signal, requests in progress have `end_s` seconds to finish.
    """
    return uvicorn.Server(
        uvicorn.Config(
            application,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=end_s,
        )
    )


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    return f"http://{LOOPBACK}:{listener.getsockname()[1]}"


def tell_ready(listener: socket.socket) -> None:
    """Write one line of JSON with the server's URL and process id to standard output."""
    announced = {"ready": True, "url": url_of(listener), "pid": os.getpid()}
    sys.stdout.write(json.dumps(announced) + "\n")
    sys.stdout.flush()


def end_by_signal() -> None:
    """Exit with status 0 on SIGTERM or SIGINT; uvicorn first ends gracefully and then raises it again."""
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)


def end_with_stdin() -> None:
    """Send SIGTERM to this process when the other end of its standard input is closed."""
    threading.Thread(target=_end_at_eof, daemon=True).start()


def _end_at_eof() -> None:
    """Wait for the end of standard input, then send SIGTERM to this process."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit with status 0: the handler of a signal."""
    sys.exit(0)
