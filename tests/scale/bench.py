"""The response times of the pages in a fleet with a long history: python -m tests.scale.bench.

A database is filled by `tests.scale.fill` (PostgreSQL: a server is started), a real tuner serves it,
and every page is requested in turn. The cost of a live page is the tuner's CPU time with one viewer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil

from tests import postgres
from tests.bench.result import header
from tests.integration.stage import Stage, stage
from tests.processes import command_line, processes
from tests.scale.fill import fill
from tuner import installed

PAGES = ("/", "/?find=gpu1", "/?group=host", "/studies", "/studies/00000001",
         "/studies/00000001?sort=energy_j", "/studies/00000001/constraints", "/devices/gpu1@host0",
         "/devices/gpu1@host0?range=30d", "/history",
         "/history?page=7", "/history?verdict=infeasible&device=gpu1@host0", "/events", "/access", "/about",
         "/studies/new", "/v1/fleet")  # fmt: skip
HISTORY = "/history?device=gpu1@host0"
TURNS = 20
SETTLE_S = 1.0
PENDING_S = 900.0
"""The seconds until the pages must have computed every study: ten minutes for a million trials."""
RENEWED_S = 10.0
"""The period in s at which a page renews itself while nothing happens."""


@contextmanager
def databases(folder: Path) -> Iterator[dict[str, str]]:
    """Yield an empty database of each kind."""
    folder.chmod(0o755)
    with postgres.server(folder / "server") as server:
        yield {
            "SQLite": f"sqlite:///{folder / 'fleet.sqlite'}",
            "PostgreSQL": postgres.new_database(server, "fleet"),
        }


def signed_in(played: Stage) -> httpx2.Client:
    client = httpx2.Client(
        base_url=f"http://127.0.0.1:{played.tuner_port}",
        headers={"Accept": "text/html"},
        follow_redirects=True,
        timeout=60.0,
    )
    client.post("/login", data={"token": played.token_file.read_text().strip()})
    return client


def asked(client: httpx2.Client, path: str) -> float:
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return time.perf_counter() - began


def at_95(times: list[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]


def shares(played: Stage, client: httpx2.Client, seconds: float) -> tuple[float, float]:
    """Return the share of a core without a viewer, and that of one viewer by the script's own rule."""
    tuner = psutil.Process(played.processes["tuner"].pid)

    def used() -> float:
        spent = tuner.cpu_times()
        return float(spent.user + spent.system)

    time.sleep(SETTLE_S)
    before = used()
    time.sleep(seconds)
    idle = (used() - before) / seconds
    before, until = used(), time.monotonic() + seconds
    while time.monotonic() < until:
        took = asked(client, "/")
        time.sleep(max(RENEWED_S, 10.0 * took))
    return idle, max(0.0, (used() - before) / seconds - idle)


def at_once(folder: Path) -> None:
    """Give this process, its later children and the server in a folder priority over all others."""
    servers = [pid for pid in processes() if f"{folder}/server/data" in command_line(pid)]
    for pid in (0, *servers):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def measured(kind: str, url: str, folder: Path) -> dict[str, object]:
    with stage(folder) as played:
        command = ["tuner", "serve", "--db", url, "--port", str(played.tuner_port)]
        command += ["--token-file", str(played.token_file)]
        played.spawn("tuner", [*played.tuner, *command])
        while not played.ready():
            time.sleep(0.1)
        client = signed_in(played)
        first = {path: asked(client, path) for path in (*PAGES, HISTORY)}
        until = time.monotonic() + PENDING_S
        while (pending := client.get("/v1/fleet").json()["pending"]) and time.monotonic() < until:
            time.sleep(1.0)
        load = os.getloadavg()[0]
        times: dict[str, list[float]] = {path: [] for path in (*PAGES, HISTORY)}
        for _ in range(TURNS):
            for path, taken in times.items():
                taken.append(asked(client, path))
        idle, viewer = shares(played, client, 60.0)
        return {
            "database": kind,
            "pending": pending,
            "load": load,
            "first_s": first,
            "p95_s": {path: at_95(taken) for path, taken in times.items()},
            "idle_core": idle,
            "viewer_core": viewer,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--database", choices=("SQLite", "PostgreSQL"), help="default: both")
    parser.add_argument(
        "--realtime", action="store_true", help="real-time priority, on a machine with other load"
    )
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as text, databases(Path(text)) as urls:
        for kind, url in urls.items():
            if given.database not in (None, kind):
                continue
            fill(url, given.devices, given.studies, given.trials)
            folder = Path(text) / kind
            folder.mkdir()
            if given.realtime:
                at_once(Path(text))
            found.append(
                {
                    **vars(given),
                    "output": "",
                    "commit": installed.commit(),
                    **measured(kind, url, folder),
                }
            )
            print(json.dumps(found[-1]), file=sys.stderr)
    given.output.write_text(json.dumps({**header(), "runs": found}, indent=1))


if __name__ == "__main__":
    main()
