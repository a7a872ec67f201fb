"""A device that an operator releases: real tuner, real agent, restarts of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.stage import Stage, stage
from tests.processes import until

WHO = {"who": "ann", "why": "its fan is changed"}


def level(played: Stage) -> str:
    (view,) = played.call("GET", "/devices")
    return str((view["applied"] or {}).get("level"))


@pytest.mark.slow
def test_a_released_device_stays_at_its_original_over_restarts_until_the_stop_is_lifted(
    tmp_path: Path,
) -> None:
    with stage(tmp_path) as played:
        played.start_tuner()
        played.start_agent("simulated:orin")
        study = played.create(constraints=[])
        played.await_phase(study, "holding")
        until(lambda: level(played) == "hold", "nothing is held")
        at = f"/stop?device={played.device()}"
        played.call("POST", at, WHO)

        def back() -> bool:
            view = played.call("GET", at)
            return bool(view["in_force"]) and [d["state"] for d in view["devices"]] == ["original"]

        until(back, "the device is not back")
        for name in ("agent", "tuner"):
            played.kill(name)
            if name == "agent":
                played.start_agent("simulated:orin")
            else:
                played.start_tuner()
            until(back, f"it is not at its original after a restart of the {name}")
            assert level(played) == "original", json.dumps(played.call("GET", "/devices"))
        played.call("DELETE", at)
        until(lambda: level(played) == "hold", "the hold is not resumed")
        assert played.phase(study) == "holding"
