"""The text engine as the agent's workload: attached to, set, measured under our load, handed a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the text engine needs torch")

from agents.host.host import HostClock
from agents.target.side import FollowsPlans, OffersLoad, Restartable, Side
from agents.workloads import open_workload
from tests.integration.reference import eventually
from tests.integration.text import DRAFT, RunningText
from tuner.core import DeviceLost, InvalidInput, Plan, Role, Row

PLAN = Plan(
    (
        Row(2.5, {"speculation_length": 4, "draft": DRAFT}, at=2.0),
        Row(math.inf, {"speculation_length": 0, "draft": DRAFT}),
    ),
    "decoding_requests",
)


@pytest.fixture
def side(text_models: Path, tmp_path: Path) -> Iterator[Side]:
    server = RunningText(text_models)
    side = open_workload(f"text:{server.url}", seed=0, state_dir=tmp_path, clock=HostClock())
    yield side
    side.close()
    server.close()


def test_its_knobs_have_roles_and_its_load_can_be_asked_for(side: Side) -> None:
    assert {k.role for k in side.space.knobs} == {Role.SPECULATION_LENGTH, Role.DRAFT}
    (signal,) = side.signals
    assert signal.signal.name == "decoding_requests" and signal.signal.askable
    assert isinstance(side.meter, OffersLoad) and isinstance(side.actuator, Restartable)


@pytest.mark.slow
def test_a_window_under_an_asked_load_shows_tokens_and_acceptance(side: Side) -> None:
    side.actuator.apply({"speculation_length": 3})
    assert side.actuator.read()["speculation_length"] == 3
    assert isinstance(side.meter, OffersLoad)
    window = side.meter.offering({"decoding_requests": 2.0}).start()
    assert eventually(lambda: window.read().totals["items"] >= 200)
    shown = window.stop()
    assert shown.totals["failed"] == 0.0
    assert shown.estimates["throughput_per_s"].mean > 0.0
    assert (
        0.0 <= shown.estimates["accepted_at_3"].mean <= shown.estimates["accepted_at_1"].mean <= 1.0
    )
    assert shown.estimates["inter_token_p99_ms"].mean > 0.0
    assert 1.0 < shown.estimates["decoding_requests"].mean <= 2.0


def test_a_plan_is_handed_to_it_and_read_back_and_a_setting_ends_it(side: Side) -> None:
    assert isinstance(side.actuator, FollowsPlans)
    assert side.actuator.follow(PLAN) and side.actuator.followed() == PLAN
    side.actuator.apply({"speculation_length": 2})
    assert side.actuator.followed() is None
    assert not side.actuator.follow(Plan(PLAN.rows, "requests_in_system"))


@pytest.mark.parametrize("spec", ["text:http://example.org:80", "text:nowhere", "text:8100"])
def test_what_is_no_address_of_this_host_is_refused(spec: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        open_workload(spec, seed=0, state_dir=tmp_path, clock=HostClock())


def test_where_nobody_answers_it_is_said_how_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(DeviceLost, match="text engine") as caught:
        open_workload("text:http://127.0.0.1:9", seed=0, state_dir=tmp_path, clock=HostClock())
    assert "agents.workloads.reference.text.serve" in str(caught.value.hint)
