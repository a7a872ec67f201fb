"""The adapter of a proxy in front of the fake server."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.speculation.client import SpeculationActuator, SpeculationClient
from agents.target.side import FollowsPlans, OffersLoad, Restartable, Side, WorkloadChanged
from agents.workloads import open_workload
from agents.workloads.engine.attach import prompt_load
from tests.contracts.actuator import SettableContract
from tests.errors import raised
from tests.llama.running import RunningProxy
from tuner.core import DeviceLost, InvalidInput, MeasurementError, Plan, Role, Row


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("prompts") / "prompts.json"
    file.write_text(json.dumps([f"def f{i}():" for i in range(64)]))
    return file


def opened(spec: str) -> Side:
    return open_workload(spec, seed=0, state_dir=Path("/nowhere"), clock=HostClock())


def plan() -> Plan:
    rows = (
        Row(2.5, {"speculation_length": 4}, at=2.0),
        Row(math.inf, {"speculation_length": 0}, gain=0.5),
    )
    return Plan(rows, by="decoding_requests", hysteresis=0.2)


class TestByRestart(SettableContract):
    @pytest.fixture
    def side(self, by_restart: RunningProxy) -> Iterator[Side]:
        by_restart.set_length(0)
        side = opened(f"llama_cpp:{by_restart.url}")
        yield side
        side.close()

    def test_a_change_with_a_restart_reports_the_restart(self, side: Side) -> None:
        (knob,) = side.space.knobs
        assert (knob.role, knob.cost.restart) == (Role.SPECULATION_LENGTH, True)

    def test_the_agent_must_follow_a_plan_itself(self, side: Side) -> None:
        assert isinstance(side.actuator, FollowsPlans)
        assert side.actuator.follow(plan()) is False
        assert side.actuator.followed() is None


class TestPerRequest(SettableContract):
    @pytest.fixture
    def side(self, per_request: RunningProxy) -> Iterator[Side]:
        per_request.set_length(0)
        side = opened(f"llama_cpp:{per_request.url}")
        yield side
        side.close()

    def test_a_plan_is_followed_and_read_back_as_it_was_given(self, side: Side) -> None:
        assert isinstance(side.actuator, FollowsPlans)
        assert side.actuator.follow(plan()) is True
        assert side.actuator.followed() == plan()
        side.actuator.apply({"speculation_length": 4})
        assert side.actuator.followed() is None

    def test_a_plan_for_another_signal_is_left_to_the_agent(self, side: Side) -> None:
        assert isinstance(side.actuator, FollowsPlans)
        rows = (Row(1.0, {"speculation_length": 1}), Row(math.inf, {"speculation_length": 0}))
        assert side.actuator.follow(Plan(rows, by="price")) is False

    def test_it_reports_its_starts(self, side: Side) -> None:
        assert isinstance(side.actuator, Restartable)
        assert side.actuator.incarnation() == side.actuator.incarnation() != ""

    def test_the_signals_are_the_present_load(self, side: Side) -> None:
        names = [(live.signal.name, live.signal.askable) for live in side.signals]
        assert names == [("decoding_requests", False), ("requests_in_system", False)]
        for sample in (live.read() for live in side.signals):
            assert (sample.present, sample.incarnation != "") == (0.0, True)

    def test_traffic_of_others_is_measured(self, side: Side, per_request: RunningProxy) -> None:
        side.actuator.apply({"speculation_length": 3})
        window = side.meter.start()
        for _ in range(4):
            per_request.complete(n_predict=32)
        reading = window.stop()
        assert reading.totals["items"] == 128.0
        assert 0.0 < reading.estimates["accepted_per_step"].mean <= 3.0
        assert reading.estimates["decoding_requests"].mean == pytest.approx(1.0)

    def test_no_length_is_claimed_while_a_plan_changes_it(
        self, side: Side, per_request: RunningProxy
    ) -> None:
        assert isinstance(side.actuator, FollowsPlans)
        side.actuator.follow(plan())
        window = side.meter.start()
        per_request.complete(n_predict=32)
        assert "accepted_per_step" not in window.stop().estimates
        side.actuator.apply({"speculation_length": 0})


@pytest.mark.parametrize("length", [0, 4])
def test_our_own_load_is_sent_as_requested(
    by_restart: RunningProxy, prompts: Path, length: int
) -> None:
    side = opened(f"llama_cpp:{by_restart.url}#callers:2,prompts:{prompts},tokens:16")
    side.actuator.apply({"speculation_length": length})
    assert isinstance(side.meter, OffersLoad)
    assert side.meter.context == {"decoding_requests": 2.0}
    assert side.signals[0].signal.askable
    meter = side.meter.offering({"decoding_requests": 3.0})
    window = meter.start()
    time.sleep(1.0)
    reading = window.stop()
    side.close()
    shown = reading.estimates
    assert reading.totals["failed"] == 0.0
    assert reading.totals["items"] >= 64.0
    assert 1.5 < shown["decoding_requests"].mean <= 3.0
    assert shown["throughput_per_s"].mean == pytest.approx(reading.totals["items"], rel=0.3)
    assert shown["inter_token_p50_ms"].mean >= 2.0 * 0.9  # a share of the stand-in's step
    assert shown["time_to_first_token_p50_ms"].mean > 0.0
    assert ("accepted_at_4" in shown) is (length == 4)
    listed = {metric.name for metric in side.metrics}
    assert set(shown) <= listed


def test_a_load_that_is_not_a_number_of_callers_is_refused(
    by_restart: RunningProxy, prompts: Path
) -> None:
    side = opened(f"llama_cpp:{by_restart.url}#prompts:{prompts}")
    assert isinstance(side.meter, OffersLoad)
    with raised(InvalidInput, "price"):
        side.meter.offering({"price": 3.0})
    side.close()


def test_a_server_that_dies_within_a_window_gives_no_measurement(by_restart: RunningProxy) -> None:
    side = opened(f"llama_cpp:{by_restart.url}")
    window = side.meter.start()
    by_restart.client.post("/stand-in", json={"die": True})
    by_restart.complete(n_predict=4)
    with pytest.raises(MeasurementError, match="measure again"):
        window.stop()
    side.close()


def test_another_model_behind_the_proxy_is_another_workload(by_restart: RunningProxy) -> None:
    client = SpeculationClient(by_restart.url)
    actuator = SpeculationActuator(
        client, client.knobs().space(), "another model", per_request=False
    )
    with pytest.raises(WorkloadChanged, match="another model"):
        actuator.incarnation()
    client.close()


def test_a_speculation_proxy_that_has_ended_is_named() -> None:
    with raised(DeviceLost, "jouletune workload proxy"):
        opened("llama_cpp:http://127.0.0.1:9")


@pytest.mark.parametrize(
    "spec", ["llama_cpp:", "llama_cpp:http://192.0.2.1:80", "llama_cpp:http://127.0.0.1:80/v1"]
)
def test_an_invalid_address_is_refused_by_name(spec: str) -> None:
    with pytest.raises(InvalidInput):
        opened(spec)


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("callers:0,prompts:{file}", "cannot read the part after"),
        ("prompts:{file},speed:2", "cannot read the part after"),
        ("callers:2", "cannot read the part after"),
        ("prompts:/no/such.json", "cannot read the prompts"),
        ("prompts:{short}", "64 are needed"),
        ("prompts:{number}", "not a JSON list of texts"),
    ],
)
def test_a_load_that_cannot_be_read_is_refused(
    tmp_path: Path, prompts: Path, fragment: str, words: str
) -> None:
    short, number = tmp_path / "short.json", tmp_path / "number.json"
    short.write_text(json.dumps(["x"] * 100))
    number.write_text("7")
    with pytest.raises(InvalidInput, match=words):
        prompt_load(fragment.format(file=prompts, short=short, number=number))
