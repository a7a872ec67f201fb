"""`jouletune run --keep`: services confirm and hold the run's result, or nothing is altered."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.stage import JOULETUNE, Stage, stage
from tests.processes import run_to_end, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOP = Path(__file__).parents[2]
QUICKLY = ("--trials", "4", "--policy", "sobol", "--seed", "1")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Stage]:
    folder = tmp_path / "services"
    folder.mkdir()
    with stage(folder) as playing:
        playing.start_tuner()
        playing.start_agent("simulated:orin")
        playing.device()
        yield playing


def run(services: Stage, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run a study, and let the services keep its result."""
    where = ("--tuner", f"http://127.0.0.1:{services.tuner_port}")
    token = ("--token-file", str(services.token_file))
    done = run_to_end(
        [*JOULETUNE, "run", "--keep", *QUICKLY, *where, *token, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TOP)},
        stdin=subprocess.DEVNULL,
        timeout=200,
    )
    return done.returncode, done.stdout, done.stderr


def applied(services: Stage) -> dict[str, Any]:
    (view,) = services.call("GET", "/devices")
    return dict(view["applied"])


@pytest.mark.slow
def test_the_services_confirm_and_hold_the_result_of_a_run(services: Stage, tmp_path: Path) -> None:
    code, out, err = run(services, tmp_path, "--device", "simulated:orin", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["won"], "the seed finds something"
    (study,) = services.call("GET", "/studies")
    assert (study["id"], study["phase"]) == (result["kept"]["id"], "holding")
    assert study["constraints"] == result["study"]["constraints"]
    assert {t["phase"] for t in services.trials(study["id"])} == {
        "baseline",
        "tuning",
        "confirming",
    }
    default = study["baseline"]["setting"]
    (row,) = study["plan"]["rows"]
    assert row["setting"] != default
    best = result["best"]["setting"]
    for trial in services.trials(study["id"]):
        for knob, value in trial["setting"].items():
            assert value in (default[knob], best[knob]), "it tries what the run chose, and no other"
    until(lambda: applied(services)["level"] == "hold", "nothing is held")
    assert applied(services)["setting"] == row["setting"]
    assert f"study {study['id']} at http://127.0.0.1:{services.tuner_port} holds " in err


def test_services_that_cannot_hold_the_result_are_reported_before_any_trial(
    services: Stage, tmp_path: Path
) -> None:
    code, _, err = run(services, tmp_path, "--device", "simulated:a100")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "has no device 'simulated-a100@" in err and "registered devices: simulated-orin@" in err
    busy = services.create(terms={"trials": 3, "window_s": 5.0})
    code, _, err = run(services, tmp_path, "--device", "simulated:orin")
    assert code == 1
    assert f"has the active study {busy}" in err
    assert not (tmp_path / ".jouletune" / "run.json").exists(), "no run has begun"
    assert [s["id"] for s in services.call("GET", "/studies")] == [busy]


def test_where_the_services_refuse_in_the_end_nothing_is_left_altered(
    services: Stage, tmp_path: Path
) -> None:
    """The token may read, so that the check before the run passes, but not change anything."""
    made = services.call("POST", "/tokens", {"name": "vera", "role": "viewer"})
    viewer = tmp_path / "viewer"
    viewer.write_text(made["token"])
    original = applied(services)
    code, out, err = run(
        services, tmp_path, "--device", "simulated:orin", "--token-file", str(viewer), "--json"
    )
    assert code == 2, err
    assert json.loads(out)["won"] and json.loads(out)["kept"] is None
    assert "vera" in err.splitlines()[-1] or "viewer" in err.splitlines()[-1]
    assert services.call("GET", "/studies") == []
    now = applied(services)
    assert (now["level"], now["setting"]) == ("original", original["setting"])
    left = list((tmp_path / ".jouletune" / "agent" / "journal").glob("*.journal"))
    assert left == [], "the run has restored the device"
