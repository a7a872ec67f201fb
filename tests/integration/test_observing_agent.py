"""A device that is only observed, by the real agent and tuner: windows arrive, and nothing sets it."""

from __future__ import annotations

import json

import httpx2

from tests.integration.stage import Stage
from tests.processes import until

ORIGINAL = {"gpu.clock_mhz": 1410, "gpu.power_limit_w": 400, "batch_size": 16}
GROUP = '[[group]]\nname = "all"\nselect = { id = "*" }\n'


def observing(played: Stage, *, observe: bool) -> None:
    """Start the agent of a simulated device, in place of a running one."""
    if "agent" in played.processes:
        played.kill("agent")
    played.start_agent("simulated:a100", own="observe = true\nobserve_s = 1.0\n" * observe)


def refused(played: Stage, path: str, body: object) -> str:
    token = played.token_file.read_text().strip()
    url = f"http://127.0.0.1:{played.tuner_port}/v1{path}"
    answer = httpx2.post(url, json=body, headers={"Authorization": f"Bearer {token}"})
    assert 400 <= answer.status_code < 500, answer.text
    return answer.text


def scraped(played: Stage) -> str:
    return httpx2.get(
        f"http://127.0.0.1:{played.tuner_port}/metrics",
        headers={"Authorization": f"Bearer {played.token_file.read_text().strip()}"},
    ).text


def test_windows_without_a_study_are_history_metrics_and_a_status(played: Stage) -> None:
    played.start_tuner()
    observing(played, observe=True)
    name = played.device()
    until(lambda: played.call("GET", f"/devices/{name}/observed")["windows"] >= 3, "no windows")
    seen = played.call("GET", f"/devices/{name}/observed")
    assert seen["joules"] > 0.0
    assert seen["metrics"]["power_w"]["mean"] > 0.0
    assert seen["metrics"]["power_w"]["origin"] == "simulated"
    (view,) = played.call("GET", "/devices")
    assert (view["device"]["observed"], view["online"], view["unable"]) == (True, True, "")
    assert view["device"]["space"]["knobs"] == []
    (row,) = played.call("GET", "/fleet")["rows"]
    assert (row["health"], row["study"]) == ("observed", "")
    assert f'jouletune_observed_power_watts{{device="{name}"' in scraped(played)
    draft = {"devices": [name], "policy": "sobol", "constraints": []}
    answer = refused(played, "/studies", draft)
    assert "is only observed" in answer
    assert "agent.toml" in answer
    fleet = {"lines": [*GROUP.splitlines(), 'mode = "observe"'], "name": "fleet.toml", "who": "me"}
    assert played.call("POST", "/fleet/apply", fleet)["observed"] == [name]
    assert "is only observed" in refused(
        played, "/fleet/diff", {"lines": GROUP.splitlines(), "name": "fleet.toml", "who": "me"}
    )


def test_a_held_device_that_is_only_observed_from_now_on_is_put_back(played: Stage) -> None:
    played.start_tuner()
    observing(played, observe=False)
    name = played.device()
    study = played.create(terms={"trials": 6, "window_s": 1.0})
    played.await_phase(study, "holding")
    files = played.folder / "agent" / "devices"
    until(lambda: [*files.glob("*/*.json")], "nothing was set")
    (file,) = files.glob("*/*.json")
    observing(played, observe=True)
    until(lambda: played.call("GET", f"/devices/{name}/observed")["windows"] >= 1, "no windows")
    (view,) = played.call("GET", "/devices")
    assert (view["applied"]["level"], view["study"]) == ("original", study)
    assert "only observed" in view["unable"]
    assert json.loads(file.read_text()) == ORIGINAL
    trials = len(played.trials(study))
    until(lambda: played.call("GET", f"/devices/{name}/observed")["windows"] >= 3, "no windows")
    assert len(played.trials(study)) == trials  # nothing more was ordered
    assert f'jouletune_observed_power_watts{{device="{name}"' in scraped(played)
