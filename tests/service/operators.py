"""The waits of operators beside a working fleet: `python -m tests.service.operators --help`.

The tuner is the real process on SQLite; agents are those of `python -m tests.bench fleet`, in this process,
and so is an operator who requests all studies repeatedly, several at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path

import httpx2

from tests.bench.fleet.connection import TunerAddress
from tests.bench.fleet.fleet import SimulatedFleet, SimulationPlan, quantile
from tests.service.bench import ADMIN, HERE, tuner
from tuner.main import utc_now

AT_ONCE = 4
"""The number of the operator's concurrent requests."""


async def asked(client: httpx2.AsyncClient, until: float) -> list[float]:
    """Return the seconds of each list of all studies, requested one after the other."""
    took = []
    while time.monotonic() < until:
        began = time.monotonic()
        answer = await client.get("/v1/studies", timeout=60.0)
        answer.raise_for_status()
        took.append(time.monotonic() - began)
    return took


async def measure(agents: int, busy: int, window_s: float) -> dict[str, object]:
    """Return the waits of the operator and of the health check, in seconds."""
    plan = SimulationPlan(
        agents=agents, busy=busy, orders=0, seconds=window_s, spec="orin", policy="sobol",
        window_s=5.0, seed=0,
    )  # fmt: skip
    with tuner(HERE) as (_, port):
        fleet = SimulatedFleet(TunerAddress("127.0.0.1", port), ADMIN, plan, utc_now, print)
        await fleet.register()
        headers = {"Authorization": f"Bearer {ADMIN}"}
        base = f"http://127.0.0.1:{port}"
        async with fleet.at_work(), httpx2.AsyncClient(base_url=base, headers=headers) as client:
            await fleet.occupy()
            await asyncio.sleep(20.0)
            until = time.monotonic() + window_s
            *lists, health = await asyncio.gather(
                *(asked(client, until) for _ in range(AT_ONCE)), fleet.health(window_s)
            )
            studies = len((await client.get("/v1/studies", timeout=60.0)).json())
    took, well = sorted(s for one in lists for s in one), sorted(health)
    return {
        "agents": agents,
        "studies": studies,
        "lists": len(took),
        "studies_p50_s": quantile(took, 0.5),
        "studies_p99_s": quantile(took, 0.99),
        "health_p50_s": quantile(well, 0.5),
        "health_p99_s": quantile(well, 0.99),
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    """Measure once, and write or print the waits."""
    parser = argparse.ArgumentParser(description="How long operators wait beside a fleet at work.")
    parser.add_argument("--agents", type=int, default=300)
    parser.add_argument("--busy", type=int, default=60, help="agents whose studies try settings")
    parser.add_argument("--window-s", type=float, default=30.0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = json.dumps(asyncio.run(measure(given.agents, given.busy, given.window_s)), indent=1)
    print(found)
    if given.output:
        given.output.write_text(found + "\n")


if __name__ == "__main__":
    main()
