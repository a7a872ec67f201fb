from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.host.http.knob_messages import KnobsReply
from agents.host.machine import HostClock
from agents.host.processes import server_process
from agents.load.generator import LoadShape
from agents.target.side import (
    LiveSignal,
    OffersLoad,
    Restartable,
    Side,
    SignalSample,
    WaitingSignal,
    WorkloadChanged,
)
from agents.workloads import open_workload
from agents.workloads.served import attach, child
from tests.errors import raised
from tests.unit.agents.workloads.stand_in import KNOBS, StandIn
from tuner.core import (
    ActuationError,
    DeviceLost,
    InvalidInput,
    MeasurementError,
    OutOfRange,
    Part,
    UnknownKnob,
    Window,
)


@pytest.fixture
def server() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


def attached(server: StandIn, shape: LoadShape | None = None) -> Side:
    return attach(
        server.url, seed=0, state_dir=Path(), clock=HostClock(), shape=shape or LoadShape(2)
    )


@pytest.fixture
def workload(server: StandIn) -> Iterator[Side]:
    workload = attached(server)
    yield workload
    workload.close()


def until_items(window: Window, items: int) -> None:
    deadline = time.monotonic() + 20.0
    while window.read().totals["items"] < items:
        assert time.monotonic() < deadline, "the load does not get on"
        time.sleep(0.01)


class TestKnobs:
    def test_the_space_is_the_servers(self, workload: Side) -> None:
        assert {k.name: k.values for k in workload.space.knobs} == {
            "instances": (1, 2),
            "batch_size": (1, 2, 4),
        }
        assert workload.space.size == 5
        assert all(k.part is Part.WORKLOAD for k in workload.space.knobs)
        assert workload.space.knob("instances").cost.seconds == 3.0
        assert (workload.name, workload.version) == ("stand-in", "7")

    def test_a_change_takes_effect_and_leaves_the_other_knobs(self, workload: Side) -> None:
        workload.actuator.apply({"instances": 2})
        workload.actuator.apply({"batch_size": 2})
        assert workload.actuator.read() == {"instances": 2, "batch_size": 2}

    def test_the_setting_in_force_is_not_sent_again(self, server: StandIn, workload: Side) -> None:
        workload.actuator.apply({"instances": 1, "batch_size": 1})
        assert server.puts == []

    @pytest.mark.parametrize(
        ("setting", "error"),
        [
            ({"threads": 2}, UnknownKnob),
            ({"batch_size": 3}, OutOfRange),
            ({"instances": 2, "batch_size": 4}, OutOfRange),
        ],
    )
    def test_an_unfitting_request_is_not_sent(
        self, server: StandIn, workload: Side, setting: dict[str, Any], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            workload.actuator.apply(setting)
        assert server.puts == []

    def test_a_refusal_carries_the_servers_words(self, server: StandIn, workload: Side) -> None:
        refusal = {"error": {"code": "busy", "message": "a reindex is running"}}
        server.override("PUT /knobs", refusal, 409)
        with raised(ActuationError, "409"):
            workload.actuator.apply({"batch_size": 2})

    def test_a_server_that_only_acknowledges_is_detected(
        self, server: StandIn, workload: Side
    ) -> None:
        server.forgets_puts = True
        with raised(ActuationError, "instances=1", "batch_size=2"):
            workload.actuator.apply({"batch_size": 2})

    def test_a_server_at_an_unlisted_setting_is_an_error(
        self, server: StandIn, workload: Side
    ) -> None:
        server.setting = {"instances": 3, "batch_size": 1}
        with raised(ActuationError, "instances"):
            workload.actuator.read()

    def test_a_server_that_has_ended_is_lost(self, server: StandIn) -> None:
        workload = attached(server)
        server.close()
        with pytest.raises(DeviceLost, match="does not answer"):
            workload.actuator.apply({"batch_size": 2})
        with pytest.raises(MeasurementError, match="does not answer"):
            workload.meter.start()
        workload.close()


class TestMeter:
    def test_a_window_shows_latencies_rates_and_totals(
        self, server: StandIn, workload: Side
    ) -> None:
        window = workload.meter.start()
        until_items(window, 320)
        shown = window.stop()
        items = shown.totals["items"]
        assert items == server.items
        assert shown.totals["failed"] == 0.0
        assert shown.totals["cpu_s"] == pytest.approx(items * 0.002)
        assert shown.estimates["latency_p99_ms"].n == items
        assert math.isfinite(shown.estimates["latency_p99_ms"].high)
        assert shown.estimates["latency_p50_ms"].mean <= shown.estimates["latency_p99_ms"].mean
        assert shown.estimates["latency_mean_ms"].stderr > 0.0
        # A closed loop without pauses: callers = rate × latency (Little's law).
        held = (
            shown.estimates["throughput_per_s"].mean
            * shown.estimates["latency_mean_ms"].mean
            / 1000.0
        )
        assert held == pytest.approx(2.0, rel=0.25)

    def test_stopping_twice_shows_the_same_and_ends_the_load(
        self, server: StandIn, workload: Side
    ) -> None:
        window = workload.meter.start()
        until_items(window, 20)
        shown = window.stop()
        sent = server.items
        assert window.stop() == shown
        assert window.read() == shown
        time.sleep(0.05)
        assert server.items == sent

    def test_failures_are_reported_and_have_no_latency(
        self, server: StandIn, workload: Side
    ) -> None:
        server.override("POST /infer", {"error": {"code": "no", "message": "no"}}, 503)
        window = workload.meter.start()
        deadline = time.monotonic() + 10.0
        while not window.read().totals["failed"] and time.monotonic() < deadline:
            time.sleep(0.01)
        shown = window.stop()
        assert shown.totals["failed"] >= 1.0
        assert shown.totals.keys() == {"items", "failed", "cpu_s"}
        assert not shown.estimates

    def test_the_items_of_a_batch_count_as_one_observation_of_a_tail(
        self, server: StandIn, workload: Side
    ) -> None:
        server.more = {"batches": 3}
        window = workload.meter.start()
        until_items(window, 320)
        server.more = {"batches": 3 + server.items // 4}
        shown = window.stop()
        assert shown.estimates["latency_p99_ms"].n == pytest.approx(
            shown.totals["items"] / 4, abs=2
        )
        assert shown.estimates["latency_p99_ms"].high == math.inf
        assert shown.estimates["latency_mean_ms"].n == shown.totals["items"]

    def test_totals_that_decrease_give_no_measurement(
        self, server: StandIn, workload: Side
    ) -> None:
        window = workload.meter.start()
        until_items(window, 5)
        with server.lock:
            server.cpu_s = 0.1
        with raised(MeasurementError, "backwards"):
            window.stop()

    @pytest.mark.parametrize("cpu_s", [-1.0, math.nan, math.inf])
    def test_absurd_totals_give_no_measurement(
        self, server: StandIn, workload: Side, cpu_s: float
    ) -> None:
        totals = {"cpu_s": cpu_s, "items": 1, "failed": 0, "pids": []}
        server.override("GET /stats", totals)
        with raised(MeasurementError, "cpu_s"):
            workload.meter.start()

    def test_an_arrival_rate_is_offered_only_under_our_own_load(
        self, server: StandIn, workload: Side
    ) -> None:
        open_loop = attached(server, LoadShape(4, rate_per_s=150.0))
        assert "arrival_rate_per_s" in {m.name for m in open_loop.metrics}
        assert "arrival_rate_per_s" not in {m.name for m in workload.metrics}
        assert "open loop at 150/s" in open_loop.source
        window = open_loop.meter.start()
        until_items(window, 300)
        rate = window.stop().estimates["arrival_rate_per_s"]
        open_loop.close()
        assert rate.mean == pytest.approx(150.0, rel=0.3)


def signal(workload: Side, name: str = "requests_in_system") -> LiveSignal:
    return next(live for live in workload.signals if live.signal.name == name)


class TestSignals:
    def test_a_server_without_a_start_id_has_no_incarnation(self, workload: Side) -> None:
        assert workload.signals == ()
        assert not isinstance(workload.actuator, Restartable)

    def test_it_reports_the_load_and_each_start(self, server: StandIn) -> None:
        server.more = {"incarnation": "a", "arrived": 5, "in_flight_s": 1.5}
        workload = attached(server)
        assert isinstance(workload.actuator, Restartable)
        assert workload.actuator.incarnation() == "a"
        assert signal(workload).read() == SignalSample(None, 1.5, "a")
        assert signal(workload, "arrival_rate_per_s").read() == SignalSample(None, 5.0, "a")
        server.more = {"incarnation": "b", "in_flight_s": 0.0}
        assert signal(workload).read() == SignalSample(None, 0.0, "b")
        server.more, server.version = {"incarnation": "c"}, "8"
        for ask in (signal(workload).read, workload.actuator.incarnation):
            with pytest.raises(WorkloadChanged, match="from 7 to 8; restart the agent"):
                ask()
        workload.close()

    def test_a_workload_without_a_load_offers_no_signal(self, server: StandIn) -> None:
        server.more = {"incarnation": "a"}
        workload = attached(server)
        assert workload.signals == () and isinstance(workload.actuator, Restartable)
        workload.close()

    def test_a_workload_that_counts_its_requests_can_wait_for_a_number(
        self, server: StandIn
    ) -> None:
        server.more = {"incarnation": "a", "in_flight_s": 0.5}
        workload = attached(server)
        assert not isinstance(signal(workload), WaitingSignal)
        workload.close()
        server.more = {"incarnation": "a", "inside": 3}
        many = {"cpu_s": 1.0, "items": 2, "failed": 0, "pids": [], "incarnation": "a", "inside": 9}
        server.override("GET /stats?inside=6&within_s=0.5", many)
        workload = attached(server)
        live = signal(workload)
        assert isinstance(live, WaitingSignal)
        assert live.wait_above(6.0, 0.5) == SignalSample(9.0, None, "a")
        assert live.read() == SignalSample(3.0, None, "a")
        workload.close()

    def test_a_missing_device_is_lost(self, server: StandIn) -> None:
        server.more = {"incarnation": "a", "inside": 0}
        workload = attached(server)
        server.close()
        with pytest.raises(DeviceLost):
            signal(workload).read()
        workload.close()


class TestAskedLoad:
    def test_it_sends_the_requested_load(self, server: StandIn, workload: Side) -> None:
        assert isinstance(workload.meter, OffersLoad)
        assert workload.meter.context == {"requests_in_system": 2.0}
        other = workload.meter.offering({"requests_in_system": 3.0})
        assert isinstance(other, OffersLoad) and other.context == {"requests_in_system": 3.0}
        window = other.start()
        until_items(window, 10)
        assert window.stop().totals["items"] >= 10

    @pytest.mark.parametrize(
        "context",
        [{"price": 1.0}, {"requests_in_system": 2.0, "arrival_rate_per_s": 3.0}],
        ids=str,
    )
    def test_an_invalid_load_is_refused_by_name(
        self, workload: Side, context: dict[str, float]
    ) -> None:
        assert isinstance(workload.meter, OffersLoad)
        with raised(InvalidInput, "load"):
            workload.meter.offering(context)


class TestAttaching:
    @pytest.mark.parametrize(
        ("content", "where"),
        [
            (b"<html>", "Invalid JSON"),
            (b"[]", "an object"),
            (b'{"name": "x"}', "version"),
            (json.dumps({"name": "x", "version": "1", "knobs": [], "setting": {}}), "knobs"),
            (
                json.dumps({"name": "x", "version": "1", "knobs": [{}], "setting": {}}),
                "knobs.0.name",
            ),
        ],
    )
    def test_answers_outside_the_contract_are_named(
        self, server: StandIn, content: bytes | str, where: str
    ) -> None:
        body = content.encode() if isinstance(content, str) else content
        server.answers["GET /knobs"] = (200, body)
        with raised(ActuationError, where):
            attached(server)

    def test_knobs_that_make_no_space_are_refused(self, server: StandIn) -> None:
        broken = {**KNOBS[0], "default": 9}
        server.override("GET /knobs", {**server.knobs(), "knobs": [broken], "only": []})
        with raised(InvalidInput, "default 9"):
            attached(server)

    def test_another_kind_of_server_is_detected(self, server: StandIn) -> None:
        server.answers["GET /knobs"] = (404, b"nothing here")
        with raised(ActuationError, "HTTP 404"):
            attached(server)

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:80/path",
            "http://10.0.0.1:80",
            "http://example.org:80",
            "http://",
        ],
    )
    def test_an_address_without_meaning_is_refused(self, url: str) -> None:
        with raised(InvalidInput, "http://127.0.0.1:PORT"):
            open_workload(url, seed=0, state_dir=Path(), clock=HostClock())

    @pytest.mark.parametrize("spec", ["", "http", "referense", "https://127.0.0.1:1"])
    def test_an_unknown_workload_is_refused_with_the_existing_ones(self, spec: str) -> None:
        with raised(InvalidInput, "http://127.0.0.1:PORT"):
            open_workload(spec, seed=0, state_dir=Path(), clock=HostClock())

    def test_a_url_opens_the_server_there(self, server: StandIn) -> None:
        workload = open_workload(server.url + "/", seed=0, state_dir=Path(), clock=HostClock())
        assert workload.actuator.read() == {"instances": 1, "batch_size": 1}
        workload.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "values", "default", "cost", "x"]), inner)
    ),
    max_leaves=8,
)


@given(
    name=JSON,
    knobs=JSON
    | st.lists(st.fixed_dictionaries({"name": st.text(), "values": JSON, "default": JSON})),
    only=JSON,
    setting=JSON,
)
def test_any_json_is_either_a_space_or_refused(
    name: object, knobs: object, only: object, setting: object
) -> None:
    body = {"name": name, "version": "1", "knobs": knobs, "only": only, "setting": setting}
    try:
        space = KnobsReply.model_validate_json(json.dumps(body)).space()
    except (ValidationError, InvalidInput):
        return
    assert space.size >= 1
    space.check(space.default)


class TestReference:
    def test_without_its_packages_the_packages_to_install_are_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(child, "NEEDS", ("torch_of_another_world",))
        with raised(InvalidInput, "torch_of_another_world"):
            open_workload("reference", seed=0, state_dir=tmp_path, clock=HostClock())

    def test_a_server_that_does_not_start_shows_the_end_of_its_log(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(child, "SERVER", "agents.workloads.no_such_server")
        with pytest.raises(DeviceLost, match="No module named") as caught:
            open_workload("reference", seed=0, state_dir=tmp_path, clock=HostClock())
        assert str(tmp_path / "reference.log") in caught.value.hint

    def test_a_model_that_does_not_exist_is_bad_input(self, tmp_path: Path) -> None:
        with raised(InvalidInput, "resnet5"):
            open_workload("reference:resnet5", seed=0, state_dir=tmp_path, clock=HostClock())

    def test_a_server_that_is_never_ready_is_given_up_and_ended(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "never_ready.py").write_text("import time\ntime.sleep(60)\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(child, "SERVER", "never_ready")
        monkeypatch.setattr(server_process, "START_S", 0.2)
        began = time.monotonic()
        with pytest.raises(DeviceLost, match="it printed nothing"):
            open_workload("reference", seed=0, state_dir=tmp_path, clock=HostClock())
        assert time.monotonic() - began < 10.0


def test_the_adapter_stays_light() -> None:
    heavy = {"torch", "numpy", "fastapi", "starlette", "sqlalchemy", "uvicorn"}
    program = (
        "import sys, agents.load, agents.workloads, agents.workloads.served\n"
        f"sys.exit(','.join(sorted({heavy!r} & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
