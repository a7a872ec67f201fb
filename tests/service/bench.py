"""What waiting agents cost a tuner, beside another commit's: `python -m tests.service.bench --help`.

The tuner is the real process on SQLite; agents are raw connections of this process. Arms alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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

from tests.service.agents import Crowd, Line
from tuner.wire import StudyDraft

HERE = Path(__file__).parents[2]
CONSOLE = "import sys; from tuner.cli.app import main; sys.exit(main(sys.argv[1:]))"
ADMIN = "x" * 43
HEALTH_EVERY_S = 0.1
ORDERS = 100
ORDER_EVERY_S = 0.2
START_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What one tuner took: `core` and `idle_core` of one processor, memory in bytes, times in seconds."""

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
    """The share of this machine's processors that neither the tuner nor we took."""


@contextmanager
def tuner(root: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Run a commit's tuner on a database of its own."""
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
    """Have so many agents wait at a commit's tuner, and measure it for a window."""
    with tuner(root) as (process, port):
        admin = Line(port, ADMIN)
        await asyncio.sleep(3.0)
        idle_core, _, _ = await load(process, admin, min(15.0, window_s))
        before = process.memory_info().rss
        crowd = Crowd(port, ADMIN, agents)
        await crowd.register()
        crowd.wait()
        await asyncio.sleep(crowd.wait_s + 5.0)
        core, health, foreign = await load(process, admin, window_s)
        grown = process.memory_info().rss - before
        late = sorted(await ordered(admin, crowd, orders))
        await crowd.end()
        return Outcome(
            commit=described(root),
            agents=agents,
            idle_core=idle_core,
            core=core,
            bytes_per_agent=grown / agents,
            health_p50_s=at(health, 0.5),
            health_p99_s=at(health, 0.99),
            order_p50_s=at(late, 0.5) if late else None,
            order_p99_s=at(late, 0.99) if late else None,
            orders=len(late),
            foreign=foreign,
        )


async def load(
    process: psutil.Process, admin: Line, window_s: float
) -> tuple[float, list[float], float]:
    """Return the share of a core that a tuner takes, how long its health took, and what others took."""
    ours = psutil.Process()
    used, all_before, began = cpu_s(process), busy_s(), time.monotonic()
    own, answers = cpu_s(ours), []
    while (now := time.monotonic()) - began < window_s:
        status, _ = await admin.ask("GET", "/v1/health")
        assert status == 200
        answers.append(time.monotonic() - now)
        await asyncio.sleep(HEALTH_EVERY_S)
    seconds = time.monotonic() - began
    took = cpu_s(process) - used
    others = busy_s() - all_before - took - (cpu_s(ours) - own)
    return took / seconds, sorted(answers), others / seconds / (os.cpu_count() or 1)


async def ordered(admin: Line, crowd: Crowd, orders: int) -> list[float]:
    """Return how long each of some orders took to its agent: from its study's creation being answered."""
    made: dict[str, float] = {}
    for n in range(0, crowd.count, max(1, crowd.count // max(1, orders)))[:orders]:
        draft = StudyDraft(
            devices=(f"d{n}",), policy="sobol", constraints=("latency_p99_ms <= 1.2x baseline",)
        )
        sent = time.monotonic()
        status, text = await admin.ask("POST", "/v1/studies", draft.model_dump_json())
        assert status == 201, text
        made[f"d{n}"] = sent
        await asyncio.sleep(ORDER_EVERY_S)
    end = time.monotonic() + 70.0
    while made.keys() - crowd.ordered.keys() and time.monotonic() < end:
        await asyncio.sleep(0.1)
    return [crowd.ordered.get(name, end) - began for name, began in made.items()]


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time a process has had."""
    times = process.cpu_times()
    return float(times.user + times.system)


def busy_s() -> float:
    """Return the processor time everything has had."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq)


def at(ordered_values: list[float], share: float) -> float:
    """Return a quantile of sorted values."""
    return ordered_values[min(len(ordered_values) - 1, int(share * len(ordered_values)))]


def described(root: Path) -> str:
    """Return the commit of a tree."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=root
    ).stdout.strip()


def main() -> None:
    """Measure both arms in turns, and write what they took."""
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
    asked.output.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))


if __name__ == "__main__":
    main()
