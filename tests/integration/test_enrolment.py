"""The enrolment of agents, with real processes."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.integration.stage import Stage, stage
from tests.processes import until


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        playing.start_tuner()
        yield playing


def status(played: Stage, token: str, path: str) -> int:
    url = f"http://127.0.0.1:{played.tuner_port}/v1{path}"
    return httpx2.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30.0).status_code


def own_token(played: Stage) -> str:
    return (played.folder / "agent" / "agent-token").read_text().split()[1]


def test_an_enrolment_token_lets_one_agent_in_which_then_has_its_own(played: Stage) -> None:
    once = str(played.call("POST", "/tokens", {"role": "enrol"})["token"])
    played.agent_token_file = played.folder / "once"
    played.agent_token_file.write_text(once)
    played.start_agent("simulated:a100")
    device = played.device()
    kept = played.folder / "agent" / "agent-token"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert once not in kept.read_text()
    assert status(played, own_token(played), "/studies") == 403
    assert status(played, once, "/studies") == 403

    before = played.call("GET", "/devices")[0]["device"]["seen_at"]
    played.kill("agent")
    played.agent_token_file.unlink()
    played.start_agent("simulated:a100")
    until(
        lambda: played.call("GET", "/devices")[0]["device"]["seen_at"] > before,
        lambda: f"{device} does not come back: {played.log('agent')}",
    )


@pytest.mark.slow
def test_an_agent_enrols_again_where_the_tuners_database_was_replaced(played: Stage) -> None:
    played.start_agent("simulated:a100")
    device, before = played.device(), own_token(played)
    played.kill("tuner")
    for file in played.folder.glob("jouletune.sqlite*"):
        file.unlink()
    played.start_tuner()
    assert played.device() == device
    assert own_token(played) != before
    assert status(played, before, "/studies") == 401
