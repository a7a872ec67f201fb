"""A federation's session with a tuner whose answers a test scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from agents.federated.embedded import FederationSpec
from agents.federated.ports import RoundOutcome
from agents.federated.session import FederationSession
from agents.federated.space import federation_space
from agents.tuner_link.client import TunerClient
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Spool
from tests.builders import Time
from tests.orders import assignment
from tuner.core import Context, Origin, Setting, Unauthorised
from tuner.wire import Assignment, Idle, Receipt, Registered

SPACE = federation_space(["all"])
FIRST: Setting = {**SPACE.default, "participants": 10}
STATE: Context = {"accuracy": 0.5, "round": 3.0}
Answer = Callable[[httpx2.Request], httpx2.Response]


def trial_at(trial: int = 1, setting: Setting = FIRST) -> Assignment:
    return assignment(
        setting, SPACE.default, trial=trial, token=trial, nonce="n", max_window_s=60.0
    )


@dataclass
class Far:
    """A tuner that hands out its orders, then idles, and can be offline."""

    orders: list[Assignment] = field(default_factory=list)
    away: bool = False
    refuses: bool = False
    told: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if self.away:
            raise httpx2.ConnectError("away")
        path, body = request.url.path, json.loads(request.content)
        if self.refuses:
            wrong = {"protocol": 1, "code": "unauthorised", "message": "no", "hint": ""}
            return httpx2.Response(401, json=wrong)
        self.told.append((path, body))
        if path.endswith("/next"):
            order = self.orders.pop(0) if self.orders else Idle(why="nothing yet")
            return httpx2.Response(200, content=order.model_dump_json())
        if path.endswith(("/report", "/step")):
            return httpx2.Response(200, content=Receipt(result="closed").model_dump_json())
        return httpx2.Response(200, content=Registered(lease_s=30.0).model_dump_json())

    def bodies(self, path: str) -> list[dict[str, object]]:
        return [body for at, body in self.told if at.endswith(path)]


def session(far: Far, folder: Path) -> FederationSession:
    folder.mkdir(exist_ok=True)
    (folder / "agent-token").write_text("digits@here secret\n")
    http = httpx2.Client(base_url="http://tuner", transport=httpx2.MockTransport(far))
    link = TunerClient(
        http, Credentials(folder, folder / "none", "digits@here"), Spool(folder / "spool")
    )
    spec = FederationSpec(name="digits", space=SPACE, classes=["all"], version="1")
    time = Time()
    return FederationSession(link, spec.device("digits@here", "here"), folder, time, time.now, "1")


def outcome(failed: str = "", **metrics: float) -> RoundOutcome:
    shown = {"energy_j": 5.0, "accuracy": 0.6, "participated": 10.0, **metrics}
    return RoundOutcome(
        metrics=shown, origin=Origin.MEASURED, context=STATE, seconds=12.0, failed=failed
    )


def test_a_round_is_requested_with_its_state_and_reported_as_its_trial(tmp_path: Path) -> None:
    far = Far([trial_at()])
    at = session(far, tmp_path)
    assert at.begin(STATE) == FIRST
    at.end(outcome(carbon_g=math.nan))
    assert far.bodies("/next")[0]["context"] == dict(STATE)
    (report,) = far.bodies("/report")
    measurement = report["outcome"]["measurement"]  # type: ignore[index]
    assert report["trial"] == 1 and measurement["context"] == dict(STATE)
    assert measurement["estimates"]["energy_j"]["origin"] == "measured"
    assert "carbon_g" not in measurement["estimates"]


def test_a_failed_round_has_a_reason(tmp_path: Path) -> None:
    far = Far([trial_at()])
    at = session(far, tmp_path)
    at.begin(STATE)
    at.end(outcome(failed="no client answered"))
    (report,) = far.bodies("/report")
    assert report["outcome"]["state"] == "failed"  # type: ignore[index]
    assert report["outcome"]["reason"] == "no client answered"  # type: ignore[index]


def test_a_round_whose_report_no_message_can_carry_has_failed(tmp_path: Path) -> None:
    far = Far([trial_at()])
    at = session(far, tmp_path)
    at.begin(STATE)
    at.end(outcome(loss=1e20))
    (report,) = far.bodies("/report")
    assert report["outcome"]["state"] == "failed"  # type: ignore[index]
    assert "cannot be reported" in report["outcome"]["reason"]  # type: ignore[index]


def test_without_the_tuner_rounds_run_at_the_latest_setting_and_are_reported_later(
    tmp_path: Path,
) -> None:
    far = Far([trial_at(1), trial_at(2)])
    at = session(far, tmp_path)
    at.begin(STATE)
    at.end(outcome())
    far.away = True
    assert at.begin(STATE) == FIRST
    at.end(outcome())
    assert far.bodies("/step") == []
    far.away = False
    at.begin(STATE)
    (step,) = far.bodies("/step")
    assert step["study"] == "s1" and step["setting"] == dict(FIRST)


def test_after_a_restart_it_still_knows_the_latest_setting(tmp_path: Path) -> None:
    far = Far([trial_at()])
    first = session(far, tmp_path)
    first.begin(STATE)
    first.end(outcome())
    far.away = True
    again = session(far, tmp_path)
    assert again.begin(STATE) == FIRST


@pytest.mark.parametrize("text", ["", "{", "[1]", '["s1", {"participants": 10}]', '["s1", 5]'])
def test_a_damaged_note_of_the_latest_setting_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "federation.json").write_text(text)
    assert session(Far(away=True), tmp_path).begin(STATE) == SPACE.default


def test_a_tuner_without_the_study_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unauthorised):
        session(Far(refuses=True), tmp_path).begin(STATE)


def test_a_tuner_without_news_is_awaited_for_some_seconds_only(tmp_path: Path) -> None:
    far = Far()
    at = session(far, tmp_path)
    assert at.begin(STATE) == SPACE.default
    assert 2 <= len(far.bodies("/next")) < 40
