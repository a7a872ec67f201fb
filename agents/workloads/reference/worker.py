"""One instance of a model: a process that answers lines of JSON on an inherited socket.

`{"run": 2}` labels the first two inputs of the shared memory and is answered with `{"done": 2}`;
`{"cores": [0, 1], "threads": 2, "batch_size": 4}` is answered with the values then in force. The
end of the stream ends the process, so that it cannot outlive the server, even a killed one. With
`--keep-memory` the memory freed by a pass is kept for the next one, and returned to the system after a
time without requests.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from agents.workloads.reference.catalogue import Model
from agents.workloads.reference.memory import own_bytes
from tuner import process_memory
from tuner.process_memory import uncollected

if TYPE_CHECKING:
    from agents.workloads.reference.engine import Engine

LOG = logging.getLogger(__name__)

LOADING_NICE = 5
"""Nice value while loading, which takes seconds of CPU: a third of the share of serving processes."""
IDLE_S = 60.0
"""Idle time before memory is given back: longer than any pause of a study."""


def load(options: argparse.Namespace, loaded: Future[Engine]) -> None:
    """Load torch and the model at low priority.

    Only this thread lowers its priority (Linux has a nice value per thread): a whole process could
    not raise it again without privileges.
    """
    thread = threading.get_native_id()
    nice = os.getpriority(os.PRIO_PROCESS, thread) + LOADING_NICE
    os.setpriority(os.PRIO_PROCESS, thread, min(nice, 19))
    try:
        from agents.workloads.reference.engine import Engine

        size = (options.seed, options.width, options.slab, options.items)
        loaded.set_result(Engine(options.model, *size))
    except BaseException as error:  # noqa: BLE001  The main thread raises it.
        loaded.set_exception(error)


def questions(channel: socket.socket, idle_s: float, idle: Callable[[], None]) -> Iterator[bytes]:
    """Yield each line until the stream ends; `idle` is called once for a silence of `idle_s`."""
    unread, idled = b"", False
    while True:
        channel.settimeout(None if idled else idle_s)
        try:
            received = channel.recv(65536)
        except TimeoutError:
            idle()
            idled = True
            continue
        if not received:
            return
        idled = False
        *lines, unread = (unread + received).split(b"\n")
        yield from lines


def give_back() -> None:
    """Return freed memory to the system, and log its size before and after."""
    before = own_bytes(os.getpid())
    process_memory.trim()
    LOG.info(
        "event=memory_given_back pid=%d before_bytes=%d after_bytes=%d",
        os.getpid(),
        before,
        own_bytes(os.getpid()),
    )


def main() -> None:
    """Serve until the other end of the socket closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--fd", "--slab", "--items", "--seed", "--width"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--model", type=Model.parsed, required=True, help="JSON of a Model")
    parser.add_argument("--keep-memory", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if options.keep_memory:
        process_memory.keep()
    # Ctrl-C signals all processes of the terminal, but the server ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=options.fd)
    loaded: Future[Engine] = Future()
    threading.Thread(target=load, args=(options, loaded), daemon=True).start()
    engine = loaded.result()
    with uncollected(), suppress(ConnectionError):
        channel.sendall(b'{"ready": true}\n')
        for line in questions(channel, IDLE_S, give_back):
            channel.sendall(json.dumps(engine.answer(json.loads(line))).encode() + b"\n")
    os._exit(0)  # A regular exit takes some 100 ms with torch.


if __name__ == "__main__":
    main()
