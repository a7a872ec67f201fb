"""The cost of waiting agents at a tuner, against another commit's: `python -m tests.service.bench --help`.

The tuner is the real process on SQLite; agents are those of `python -m tests.bench fleet`, in this process.
Arms alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.bench.fleet.connection import TunerAddress
from tests.bench.fleet.fleet import SimulatedFleet, SimulationPlan, quantile
from tests.bench.result import header
from tests.processes import run_to_end
from tuner.main import utc_now

HERE = Path(__file__).parents[2]
CONSOLE = "import sys; from tuner.cli.app import main; sys.exit(main(sys.argv[1:]))"
ADMIN = "x" * 43
ORDERS = 100
START_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """The cost of one tuner: `core` and `idle_core` of one processor, memory in bytes, times in seconds."""

    commit: str
    agents: int
    idle_core: float
    core: float
    bytes_per_agent: float
    health_p50_s: float
    health_p99_s: float
    order_p50_s: float | None
    order_p99_s: float | None
    orders: int
    foreign: float
    """The share of this machine's processors used by other programs than the tuner and this bench."""


@contextmanager
def tuner(root: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Run a commit's tuner on a separate database."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        token = folder / "token"
        token.touch(0o600)
        token.write_text(ADMIN)
        options = [
            "--db",
            f"sqlite:///{folder}/t.sqlite",
            "--token-file",
            str(token),
            "--port",
            "0",
        ]
        command = [sys.executable, "-c", CONSOLE, "tuner", "serve", *options]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--port-file", str(folder / "port")],
                env=os.environ | {"PYTHONPATH": str(root)}, cwd=folder, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            end = time.monotonic() + START_S
            while not (folder / "port").exists():
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit((folder / "log").read_text())
                time.sleep(0.1)
            yield psutil.Process(process.pid), int((folder / "port").read_text())
        finally:
            process.terminate()
            process.wait(START_S)


async def measure(root: Path, agents: int, window_s: float, orders: int) -> Outcome:
    """Let this many agents wait at a commit's tuner, and measure it for a window."""
    plan = SimulationPlan(
        agents=agents,
        busy=0,
        orders=orders,
        seconds=window_s,
        spec="orin",
        policy="sobol",
        window_s=3600.0,
        seed=0,
    )
    with tuner(root) as (process, port):
        fleet = SimulatedFleet(TunerAddress("127.0.0.1", port), ADMIN, plan, utc_now, print)
        await asyncio.sleep(3.0)
        idle_core, _, _ = await load(process, fleet, min(15.0, window_s))
        before = process.memory_info().rss
        await fleet.register()
        async with fleet.at_work():
            await asyncio.sleep(plan.spread_s + 60.0 + 5.0)
            core, health, foreign = await load(process, fleet, window_s)
            grown = process.memory_info().rss - before
            late = sorted(math.inf if one is None else one for one in await fleet.order())
        return Outcome(
            commit=described(root),
            agents=agents,
            idle_core=idle_core,
            core=core,
            bytes_per_agent=grown / agents,
            health_p50_s=quantile(health, 0.5),
            health_p99_s=quantile(health, 0.99),
            order_p50_s=quantile(late, 0.5) if late else None,
            order_p99_s=quantile(late, 0.99) if late else None,
            orders=len(late),
            foreign=foreign,
        )


async def load(
    process: psutil.Process, fleet: SimulatedFleet, window_s: float
) -> tuple[float, list[float], float]:
    """Return a tuner's share of a core, the seconds of its health check, and the foreign load."""
    ours = psutil.Process()
    used, all_before, began = cpu_s(process), busy_s(), time.monotonic()
    own = cpu_s(ours)
    answers = sorted(await fleet.health(window_s))
    seconds = time.monotonic() - began
    took = cpu_s(process) - used
    others = busy_s() - all_before - took - (cpu_s(ours) - own)
    return took / seconds, answers, others / seconds / (os.cpu_count() or 1)


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def busy_s() -> float:
    """Return the processor time of all processes."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq)


def described(root: Path) -> str:
    """Return the commit of a tree."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return run_to_end(command, check=True, cwd=root).stdout.strip()


def main() -> None:
    """Measure both arms in turns, and write the results."""
    parser = argparse.ArgumentParser(description="What waiting agents cost a tuner.")
    parser.add_argument("--before", type=Path, help="a checkout of another commit, to compare with")
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--agents-before", type=int, default=200)
    parser.add_argument("--window-s", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    outcomes = []
    for _ in range(asked.rounds):
        arms = [(HERE, asked.agents, ORDERS)]
        if asked.before:
            arms.insert(0, (asked.before, asked.agents_before, 0))
        for root, agents, orders in arms:
            outcomes.append(asyncio.run(measure(root, agents, asked.window_s, orders)))
            print(json.dumps(asdict(outcomes[-1])), flush=True)
    asked.output.write_text(
        json.dumps({**header(), "runs": [asdict(o) for o in outcomes]}, indent=1)
    )


if __name__ == "__main__":
    main()
