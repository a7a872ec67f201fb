"""The enrolment of agents, with real processes."""

from __future__ import annotations

import stat

import httpx2
import pytest

from tests.integration.stage import Stage
from tests.processes import until


def status(served: Stage, token: str, path: str) -> int:
    url = f"http://127.0.0.1:{served.tuner_port}/v1{path}"
    return httpx2.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30.0).status_code


def own_token(served: Stage) -> str:
    return (served.folder / "agent" / "agent-token").read_text().split()[1]


def test_an_enrolment_token_lets_one_agent_in_which_then_has_its_own(served: Stage) -> None:
    once = str(served.call("POST", "/tokens", {"role": "enrol"})["token"])
    served.agent_token_file = served.folder / "once"
    served.agent_token_file.write_text(once)
    served.start_agent("simulated:a100")
    device = served.device()
    kept = served.folder / "agent" / "agent-token"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert once not in kept.read_text()
    assert status(served, own_token(served), "/studies") == 403
    assert status(served, once, "/studies") == 403

    before = served.call("GET", "/devices")[0]["device"]["seen_at"]
    served.kill("agent")
    served.agent_token_file.unlink()
    served.start_agent("simulated:a100")
    until(
        lambda: served.call("GET", "/devices")[0]["device"]["seen_at"] > before,
        lambda: f"{device} does not come back: {served.log('agent')}",
    )


@pytest.mark.slow
def test_an_agent_enrols_again_where_the_tuners_database_was_replaced(served: Stage) -> None:
    served.start_agent("simulated:a100")
    device, before = served.device(), own_token(served)
    served.kill("tuner")
    for file in served.folder.glob("jouletune.sqlite*"):
        file.unlink()
    served.start_tuner()
    assert served.device() == device
    assert own_token(served) != before
    assert status(served, before, "/studies") == 401
