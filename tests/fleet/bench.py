"""The costs of a fleet: python -m tests.fleet.bench PART … --output FILE; the file collects the parts.

holding: 10,000 agents of `python -m tests.bench fleet` at one tuner on PostgreSQL, most of them holding.
replicas: three tuners killed, cut off and without database in turns, for ten minutes.
asking: studies of one space that request a suggestion at once, with one worker process and with two.
trials: millions of trials in PostgreSQL, and the response times of the pages.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import text

from tests import postgres
from tests.bench.fleet.fleet import chosen
from tests.bench.result import header
from tests.builders import asked, baseline, knob, past, surface
from tests.fleet.history import DEVICE, PAGES, many_trials, timed
from tests.fleet.holding import hold
from tests.fleet.site import Ordeal, Site, Workforce, assert_whole, draft, site
from tests.integration.stage import JOULETUNE
from tests.processes import until
from tuner import installed
from tuner.core import Past, Space, Study
from tuner.main import limit_threads
from tuner.suggesting.suggestions import Suggestions
from tuner.suggesting.workers import LocalWorker, SuggestionWorker

SPEC = "orin"
ALONE, TOGETHER = 24, 16
ONE, TWO, RAY = "one process", "two processes", "Ray, two workers"
TRIALS, WINDOW_S = 60, 5.0
UPGRADED, TUNED = 1_000, 40


@contextmanager
def database(options: str = "") -> Iterator[str]:
    """Run PostgreSQL with its default syncing; yield the URL of an empty database."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres.server(Path(folder) / "server", options) as server:
            yield postgres.new_database(server, "fleet")


def holding(given: argparse.Namespace) -> Any:  # noqa: ANN401
    busy, orders = given.busy, 100
    free = {*chosen(given.agents, busy, 0), *chosen(given.agents, orders, 1)}
    with database() as url:
        hold(url, given.agents, free, SPEC)
        command = ["--agents", str(given.agents), "--busy", str(busy), "--orders", str(orders)]
        command += ["--db", url, "--seconds", str(given.seconds), "--device", SPEC, "--json"]
        before = os.getloadavg()[0]
        simulate = [sys.executable, "-m", "tests.bench", "fleet", *command]
        done = subprocess.run(simulate, stdout=subprocess.PIPE, check=True)
        return {**json.loads(done.stdout), "load_before": before}


def replicas(given: argparse.Namespace) -> Any:  # noqa: ANN401
    ordeal = Ordeal(seconds=given.minutes * 60.0, every_s=20.0, cut_s=30.0, restarts=3)
    with (
        tempfile.TemporaryDirectory() as folder,
        site(Path(folder), 3) as played,
        Workforce(played.balancer.port, ALONE + TOGETHER) as agents,
    ):
        wanted = [[f"fleet-{n}"] for n in range(ALONE)]
        wanted += [[f"fleet-{ALONE + 4 * s + n}" for n in range(4)] for s in range(TOGETHER // 4)]
        studies = [
            str(played.call("POST", "/studies", draft(devices, TRIALS, WINDOW_S))["id"])
            for devices in wanted
        ]
        ordeal.inflict(played)
        until(
            lambda: all(s["phase"] == "holding" for s in played.call("GET", "/studies")),
            "a study is stuck",
            900.0,
        )
        until(lambda: agents.traffic.holding == ALONE + TOGETHER, "not every device holds")
        trials = assert_whole(played.url, studies, TRIALS)
        for study in studies:
            played.call("POST", f"/studies/{study}/stop", {"why": "it is over"})
        until(lambda: agents.traffic.holding == 0, "a device is left altered")
        receipts = dict(agents.traffic.receipts)
    return {
        "minutes": given.minutes,
        "done": dict(ordeal.done),
        "studies": len(studies),
        "trials": trials,
        "receipts": receipts,
        "failed": agents.traffic.failed,
    }


def studies_that_ask(count: int) -> list[Past]:
    """Return studies of one space of 500 settings, 20 trials each, that differ in noise and seed."""
    clocks, limits = tuple(range(400, 1400, 40)), tuple(range(100, 300, 10))
    space = Space((knob("gpu.clock_mhz", clocks, 1360), knob("gpu.power_limit_w", limits, 290)))
    assert space.size == 500
    tried = []
    for number in range(count):
        at = replace(asked(40), id=f"s{number}", seed=number, space=space)
        tried.append(_tried(at, number))
    return tried


def _tried(at: Study, number: int) -> Past:
    import random

    from tests.builders import trial, window

    rng, trials = (
        random.Random(number),
        baseline(at, surface({"gpu.clock_mhz": 1360, "batch_size": 1})),
    )
    for n in range(3, 23):
        clock, limit = (rng.choice(k.values) for k in at.space.knobs)
        level = surface({"gpu.clock_mhz": clock, "batch_size": 1}).estimates
        energy = (
            level["energy_j"].mean * (1.0 + abs(float(limit) - 200.0) / 1000.0) * rng.gauss(1, 0.01)
        )
        seen = window(energy, level["latency_p99_ms"].mean * rng.gauss(1, 0.01))
        trials.append(trial(n, {"gpu.clock_mhz": clock, "gpu.power_limit_w": limit}, seen))
    return past(at, trials)


def asking(given: argparse.Namespace) -> Any:  # noqa: ANN401
    """Request many suggestions at once, in turns by one process, by two and by Ray, each warmed up."""
    limit_threads()
    pasts, warm = studies_that_ask(given.studies), studies_that_ask(4)
    timings: dict[str, Any] = {"studies": given.studies, "settings": 500, "trials": 20, "runs": []}
    decided: dict[str, list[Any]] = {}
    for by in 2 * (ONE, TWO, RAY):
        with _workers(by) as workers:
            seconds, suggestions = _asked_at_once(workers, pasts, warm)
        decided.setdefault(by, suggestions)
        timings["runs"].append({"by": by, "seconds": seconds})
    alike = zip(*decided.values(), strict=True)
    return {**timings, "same": sum(all(s == first for s in rest) for first, *rest in alike)}


@contextmanager
def _workers(by: str) -> Iterator[Sequence[SuggestionWorker]]:
    """Yield the workers, each limited to one thread."""
    if by != RAY:
        yield [LocalWorker() for _ in range(2 if by == TWO else 1)]
        return
    from tuner.suggesting.cluster import RayCluster

    cluster = RayCluster("local")
    yield [cluster.worker() for _ in range(2)]
    cluster.close()


def _asked_at_once(
    workers: Sequence[SuggestionWorker], pasts: Sequence[Past], warm: Sequence[Past]
) -> tuple[float, list[Any]]:
    from policies import load_policy

    woken: list[str] = []
    suggestions = Suggestions(load_policy, workers, lambda s: woken.append(s.id))
    end, policy = suggestions.begin(), suggestions.policy("polythrottle")
    try:
        for one in warm:
            policy.suggest(one)
        until(lambda: len(woken) == len(warm), "the processes do not begin", 300.0)
        for one in warm:
            policy.suggest(one)
        woken.clear()
        began = time.monotonic()
        for one in pasts:
            policy.suggest(one)
        until(lambda: len({*woken}) >= len(pasts), "not all were decided", 3600.0)
        seconds = time.monotonic() - began
        return seconds, [policy.suggest(one) for one in pasts]
    finally:
        end()


def trials(given: argparse.Namespace) -> Any:  # noqa: ANN401
    # Filled without syncing, because the queries afterwards write nothing.
    with database("-F -c max_wal_size=8GB -c shared_buffers=1GB") as url:
        began = time.monotonic()
        size = many_trials(url, given.trials)
        filled_s = time.monotonic() - began
        with tempfile.TemporaryDirectory() as folder:
            return {
                **size,
                "filled_s": filled_s,
                "device": DEVICE,
                **timed(Path(folder), url, PAGES),
            }


def upgrade(given: argparse.Namespace) -> Any:  # noqa: ANN401
    """Replace two tuners of a former release by today's, one after the other, beside their agents."""
    if given.before is None:
        raise SystemExit("--before: name a checkout of the release that is upgraded from")
    former = f"import sys; sys.path.insert(0, {str(given.before)!r}); "
    program = [sys.executable, "-c", former + JOULETUNE[-1]]
    with (
        tempfile.TemporaryDirectory() as folder,
        site(Path(folder), 2, program) as played,
        Workforce(played.balancer.port, UPGRADED) as agents,
    ):
        wanted = [draft([f"fleet-{n}"], TRIALS, WINDOW_S) for n in range(TUNED)]
        studies = [str(played.call("POST", "/studies", one)["id"]) for one in wanted]
        until(lambda: agents.traffic.waiting >= UPGRADED - TUNED - 5, "not everybody waits", 300.0)
        before, failed = _schema(played), agents.traffic.failed
        for tuner in played.tuners:
            tuner.signal("tuner", signal.SIGTERM)
            tuner.processes["tuner"].wait(60.0)
            tuner.kill("tuner")
            tuner.tuner = JOULETUNE
            tuner.start_tuner()
            time.sleep(20.0)
        lost = agents.traffic.failed - failed
        until(
            lambda: all(s["phase"] == "holding" for s in played.call("GET", "/studies")),
            "a study is stuck",
            900.0,
        )
        until(lambda: agents.traffic.holding == TUNED, "not every device holds")
        trials = assert_whole(played.url, studies, TRIALS)
        receipts, after = dict(agents.traffic.receipts), _schema(played)
    return {
        "agents": UPGRADED,
        "studies": TUNED,
        "schemas": [before, after],
        "requests_in_vain": lost,
        "trials": trials,
        "receipts": receipts,
    }


def _schema(played: Site) -> str:
    with postgres.connection(played.url) as connection:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar())


PARTS = {
    "holding": holding,
    "replicas": replicas,
    "asking": asking,
    "trials": trials,
    "upgrade": upgrade,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--busy", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--studies", type=int, default=1_000)
    parser.add_argument("--before", type=Path, help="a checkout of a former release")
    parser.add_argument("--trials", type=int, default=10_000_000)
    given = parser.parse_args()
    known = json.loads(given.output.read_text()) if given.output.exists() else {}
    for part in given.parts:
        known[part] = {"commit": installed.commit(), **PARTS[part](given)}
        given.output.write_text(json.dumps({**known, **header()}, indent=1))
        print(json.dumps({part: known[part]}), file=sys.stderr)


if __name__ == "__main__":
    main()
