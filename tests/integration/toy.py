"""A workload of a few lines that follows the knob contract, as a separate process.

It serves an item after a fixed sleep that depends on its knob, so a trial takes real time but no CPU,
and its setting outlives the agent, like that of hardware. `PUT /pace` makes every item take longer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import ThreadingHTTPServer

from tests.integration.spoken import Spoken, serve

PAUSES_MS = {1: 16.0, 2: 12.0, 4: 6.0, 8: 20.0}
KNOB = {
    "name": "batch_size",
    "values": list(PAUSES_MS),
    "default": 1,
    "cost": {"seconds": 0.0, "restart": False},
}


class Toy(ThreadingHTTPServer):
    """The server, its one setting and its count of items."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.setting = {"batch_size": 1}
        self.items = 0
        self.times = 1.0


class Handler(Spoken):
    """One connection."""

    server: Toy

    def do_GET(self) -> None:
        if self.path == "/knobs":
            about = {"name": "toy", "version": "1", "knobs": [KNOB]}
            return self.answer(200, {**about, "setting": self.server.setting})
        stats = {"cpu_s": time.process_time(), "items": self.server.items, "failed": 0}
        return self.answer(200, {**stats, "pids": [], "incarnation": str(os.getpid())})

    def do_PUT(self) -> None:
        wanted = json.loads(self.body())
        if self.path == "/pace":
            self.server.times = wanted["times"]
            return self.answer(200, {})
        if wanted.get("batch_size") not in PAUSES_MS:
            problem = {"code": "out_of_range", "message": f"cannot be {wanted}"}
            return self.answer(422, {"error": problem})
        self.server.setting = {"batch_size": wanted["batch_size"]}
        return self.answer(200, {"setting": self.server.setting})

    def do_POST(self) -> None:
        self.body()
        time.sleep(self.server.times * PAUSES_MS[self.server.setting["batch_size"]] / 1000.0)
        self.server.items += 1
        self.answer(200, {"label": 1})


if __name__ == "__main__":
    serve(Toy(int(sys.argv[1])))
