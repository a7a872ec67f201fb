"""A Packrat study through to its hold, by real processes; the held plan is followed at the edge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from agents.host.machine import HostClock
from agents.load.generator import LoadRun, LoadShape
from agents.load.http_caller import HttpCaller
from tests.integration.batching import seconds
from tests.integration.stage import Stage
from tests.processes import until

pytestmark = pytest.mark.slow

CALLERS = 4
"""The callers of the agent's closed loop, which is also the load under the followed plan."""


def in_force(port: int) -> dict[str, int]:
    """Return the setting that the workload itself reports."""
    return dict(httpx2.get(f"http://127.0.0.1:{port}/knobs", trust_env=False).json()["setting"])


@contextmanager
def loaded(port: int) -> Iterator[None]:
    """Keep as many requests in flight as the study did."""
    run = LoadRun(
        lambda: HttpCaller("127.0.0.1", port, "/infer"), LoadShape(CALLERS), clock=HostClock()
    )
    try:
        yield
    finally:
        run.stop(grace_s=0.0)


def takes(setting: dict[str, int], demand: int) -> float:
    """Return the true seconds of a setting for items that arrive together."""
    items = min(setting["batch_size"], demand)
    busy = min(setting["instances"], math.ceil(demand / items))
    return math.ceil(demand / (busy * items)) * seconds(busy, setting["threads"], items)


def setting_for(plan: dict[str, Any], demand: int) -> dict[str, int]:
    row = next(r for r in plan["rows"] if demand < float(r["below"]))
    return dict(row["setting"])


@pytest.mark.timeout(180)
@pytest.mark.quiet
def test_a_plan_is_found_confirmed_held_and_followed(played: Stage) -> None:
    port = played.start_toy(module="tests.integration.batching")
    played.start_tuner()
    played.start_agent("cpu", f"http://127.0.0.1:{port}")
    study = played.create(
        policy="packrat",
        objective="maximize throughput_per_s",
        terms={"trials": 5, "window_s": 0.6, "max_window_s": 1.2},
    )
    played.await_phase(study, "holding")

    trials = played.trials(study)
    assert {t["state"] for t in trials} == {"completed"}
    tuning = [t["why"] for t in trials if t["phase"] == "tuning"]
    assert any(why.startswith("profile: one instance alone, threads=1") for why in tuning), trials
    assert any(why.startswith("check 2 instances in parallel for a demand of") for why in tuning)
    assert len(tuning) <= 5

    plan = played.call("GET", f"/studies/{study}")["plan"]
    baseline = {"instances": 1, "threads": 2, "batch_size": 1}
    assert plan["by"] == "requests_in_system" and len(plan["rows"]) >= 2
    held = {demand: setting_for(plan, demand) for demand in (1, CALLERS)}
    assert held[1] == baseline, "one item alone is done soonest by all threads"
    assert takes(held[CALLERS], CALLERS) < 0.6 * takes(baseline, CALLERS)
    confirmed = {tuple(t["setting"].values()) for t in trials if t["phase"] == "confirming"}
    assert {tuple(r["setting"].values()) for r in plan["rows"]} <= confirmed

    report = played.call("GET", f"/studies/{study}/report")
    assert report["alternating"] and report["saving"]["mean"] > 0.6

    # The agent follows the held plan, also without a tuner.
    until(lambda: in_force(port) == held[1], "the row for an idle load is not in force")
    played.kill("tuner")
    with loaded(port):
        until(lambda: in_force(port) == held[CALLERS], f"not the load's row: {played.log('agent')}")
    until(lambda: in_force(port) == held[1], "the row does not follow the load down")
