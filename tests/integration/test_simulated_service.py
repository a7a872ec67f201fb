"""A plan by load on a simulated server of a language model, through a real tuner and a real agent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.stage import Stage, stage
from tests.processes import until

STEP_S = 600.0
BLOCK_S = 20.0
RATE, RATES = "arrival_rate_per_s", (2.0, 8.0)
TOKENS = (60, 120)
FASTEST = {"gpu.clock_mhz": 1980}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5 * STEP_S)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Stage]:
    chance, at, lines = random.Random(1), 0.0, ["arrival_s,prompt_tokens,output_tokens"]
    for block in range(60):
        rate, tokens = RATES[block % 2], TOKENS[block // 2 % 2]
        while (at := at + chance.expovariate(rate)) < (block + 1) * BLOCK_S:
            lines.append(f"{at:.3f},{chance.randint(200, 800)},{tokens}")
        at = (block + 1) * BLOCK_S
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(lines) + "\n")
    with stage(tmp_path) as site:
        site.start_tuner()
        site.start_agent(f"simulated:h100-llm@{trace}")
        yield site


def test_a_plan_grows_and_is_followed_between_windows(site: Stage) -> None:
    study = site.create(
        policy="polythrottle",
        constraints=["latency_p50_ms <= 8000"],
        terms={"plan_by": RATE, "trials": 16, "window_s": 30.0, "max_window_s": 60.0},
    )

    def shown() -> dict[str, Any]:
        return dict(site.call("GET", f"/studies/{study}"))

    def held() -> list[dict[str, Any]]:
        return list((shown()["plan"] or {"rows": []})["rows"])

    def applied() -> object:
        return site.call("GET", "/devices")[0]["applied"]["setting"]

    until(lambda: len(held()) > 1, lambda: f"no plan by load: {shown()['phase_why']}", STEP_S)
    until(lambda: applied() not in ({}, FASTEST), lambda: f"not followed: {shown()}", STEP_S)
    assert held()[-1]["setting"] == FASTEST
