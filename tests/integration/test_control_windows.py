"""The baseline measured again while a setting is held, with real processes and real kills."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.stage import JOULETUNE, Stage, stage
from tests.processes import until

pytestmark = pytest.mark.slow

BRISK = [
    sys.executable,
    "-c",
    "import sys; from tuner.study import assignments; assignments.OBSERVE_S = 0.4; "
    "from tuner.cli.app import main; sys.exit(main())",
]
"""A tuner that has holds measured more than twice a second instead of once a minute."""


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        playing.tuner = BRISK
        yield playing


def controls(played: Stage, study: str) -> list[dict[str, Any]]:
    return [t for t in played.trials(study) if t["phase"] == "holding"]


def completed(played: Stage, study: str) -> int:
    return sum(t["state"] == "completed" for t in controls(played, study))


def batch_size(toy: int) -> int:
    return int(httpx2.get(f"http://127.0.0.1:{toy}/knobs").json()["setting"]["batch_size"])


def await_hold(played: Stage, toy: int, held: int) -> None:
    until(lambda: batch_size(toy) == held, lambda: f"not held on: {played.log('agent')}")


@pytest.mark.promise("the baseline drifts while another setting is held")
def test_a_hold_continues_after_control_windows_and_kills_within_them(played: Stage) -> None:
    played.start_tuner()
    toy = played.start_toy()
    played.start_agent("cpu", f"http://127.0.0.1:{toy}")
    terms = {"trials": 3, "window_s": 1.5, "max_window_s": 3.0, "control_share": 0.2}
    study = played.create(
        objective="latency_mean_ms", constraints=["latency_mean_ms <= 2x baseline"], terms=terms
    )
    played.await_phase(study, "holding")
    until(lambda: batch_size(toy) != 1, "no winner")
    held = batch_size(toy)
    for killed in ("tuner", "agent"):
        before = len(controls(played, study))
        until(lambda n=before: len(controls(played, study)) > n, "no control window")  # type: ignore[misc]
        window = controls(played, study)[-1]
        until(lambda: batch_size(toy) == 1, "the baseline is not measured")
        played.kill(killed)
        assert batch_size(toy) in (1, held), "as held, or original"
        if killed == "tuner":
            played.start_tuner()
        else:
            played.start_agent("cpu", f"http://127.0.0.1:{toy}")

        def ended(number: int = window["number"]) -> bool:
            return bool(played.trials(study)[number - 1]["state"] != "running")

        until(ended, lambda: f"the window does not end: {played.log('agent')}")
        await_hold(played, toy, held)
    trials = played.trials(study)
    assert [t["number"] for t in trials] == list(range(1, len(trials) + 1))
    assert played.phase(study) == "holding"
    assert completed(played, study) >= 2
    assert {t["setting"]["batch_size"] for t in controls(played, study)} == {1}
    played.call("POST", f"/studies/{study}/stop", {})
    until(lambda: batch_size(toy) == 1, "the original is not restored")


def test_savings_count_from_the_control_windows(played: Stage) -> None:
    played.start_tuner()
    played.start_agent("simulated:a100")
    terms = {"trials": 3, "window_s": 1.0, "max_window_s": 2.0, "control_share": 0.2}
    study = played.create(terms=terms)
    played.await_phase(study, "holding")
    until(lambda: completed(played, study) >= 2, lambda: f"none: {played.log('agent')}")

    def bill() -> dict[str, Any]:
        current: dict[str, Any] = played.call("GET", f"/studies/{study}/report")["bill"]
        return current

    until(lambda: bill()["controls"] >= 2, "the bill does not rest on them")
    first = bill()
    assert first["whole"]["stderr_j"] > 0.0
    assert first["measured_again_at"] is not None
    assert first["extrapolated_since"] is None
    command = [*JOULETUNE, "study", "show", study, "--db", played.db]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "20.0 % of the windows of a hold re-measure the baseline" in shown.stdout
    assert ", baseline re-measured at " in shown.stdout


def test_unreadable_hours_are_refused_over_http(played: Stage) -> None:
    played.start_tuner()
    played.start_agent("simulated:a100")
    token = played.token_file.read_text().strip()
    for terms, said in (
        ({"control_share": 0.02, "control_hours": "late"}, "control_hours cannot be 'late'"),
        ({"control_share": 0.9}, "control_share cannot be 0.9"),
    ):
        answer = httpx2.post(
            f"http://127.0.0.1:{played.tuner_port}/v1/studies",
            json={"devices": [played.device()], "constraints": [], "terms": terms},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 422
        assert said in answer.text
