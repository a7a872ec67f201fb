"""Identical devices that each try a setting, with real processes: a tuner and an agent that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.stage import Stage
from tests.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS = ("one", "two", "three")
DRAFT: dict[str, Any] = {
    "policy": "polythrottle",
    "objective": "energy_j",
    "constraints": ["latency_p99_ms <= 1.2x baseline"],
    "terms": {"trials": 9, "window_s": 10.0, "max_window_s": 40.0},
}


@pytest.fixture
def hosts(served: Stage) -> Iterator[dict[str, Stage]]:
    """Agents of separate hosts, each with a simulated GPU."""
    by_name = {}
    for name in HOSTS:
        (served.folder / name).mkdir()
        by_name[name] = Stage(
            served.folder / name,
            tuner_port=served.tuner_port,
            agent_token_file=served.token_file,
            agent_toml=f'name = "{name}"\n',
        )
        by_name[name].start_agent("simulated:a100")
    yield by_name
    for host in by_name.values():
        for process in list(host.processes):
            host.kill(process)


def devices(served: Stage) -> list[str]:
    until(lambda: len(served.call("GET", "/devices")) == len(HOSTS), "not all have registered")
    return [str(d["device"]["id"]) for d in served.call("GET", "/devices")]


def alone(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [t for t in trials if t["device"]]


def test_each_device_tries_its_own_settings_and_all_hold_the_same(
    served: Stage, hosts: dict[str, Stage]
) -> None:
    names = devices(served)
    study = served.create(devices=names, **{**DRAFT, "policy": "sobol"})
    served.await_phase(study, "holding", 120.0)
    trials = served.trials(study)
    assert [t["number"] for t in trials] == list(range(1, len(trials) + 1))
    tuning = [t for t in trials if t["phase"] == "tuning"]
    assert {t["device"] for t in tuning} == set(names)
    assert {t["device"] for t in trials if t["phase"] != "tuning"} == {""}
    assert len(tuning) <= 9

    def held() -> set[str]:
        return {str(d["applied"]["setting"]) for d in served.call("GET", "/devices")}

    until(lambda: len(held()) == 1, "not all hold the plan")
    for one in names:
        shown = served.call("GET", f"/history?device={one}&study={study}")
        mine = [t["number"] for t in trials if t["device"] in ("", one)]
        assert sorted(row["number"] for row in shown) == mine


@pytest.mark.slow
def test_killed_tuners_and_agents_cost_no_trial(served: Stage, hosts: dict[str, Stage]) -> None:
    study = served.create(devices=devices(served), **{**DRAFT, "policy": "sobol"})
    for count, name in enumerate(HOSTS, 1):
        until(lambda n=count: len(alone(served.trials(study))) >= 2 * n, "no progress")  # type: ignore[misc]
        hosts[name].kill("agent")
        served.kill("tuner")
        served.start_tuner()
        hosts[name].start_agent("simulated:a100")
    served.await_phase(study, "holding", 180.0)
    trials = served.trials(study)
    assert [t["number"] for t in trials] == list(range(1, len(trials) + 1))
    assert {t["state"] for t in trials} == {"completed"}
    settings = [str(t["setting"]) for t in alone(trials)]
    assert len(settings) <= 9
