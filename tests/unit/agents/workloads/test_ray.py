from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.host.host import HostClock
from agents.target.side import NothingToSet, Side
from agents.target.target import Target
from agents.workloads import open_workload
from agents.workloads.ray import actuator
from agents.workloads.ray.attach import RayProcesses
from agents.workloads.ray.dashboard import Node
from agents.workloads.ray.deployment import space_for
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import MeterContract
from tests.errors import raised
from tests.unit.agents.workloads.ray_stand_in import CODE, DEMO, OTHER, RayStandIn
from tuner.core import (
    ActuationError,
    Clock,
    DeviceLost,
    InvalidInput,
    MeasurementError,
    Origin,
    OutOfRange,
    Space,
    Value,
)

AS_FOUND: dict[str, Value] = {"replicas": 1, "num_cpus": 1, "batch_size": 4}


@dataclass
class SkippingClock:
    """Time that passes only by sleeping, so that waiting for Ray costs nothing."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def ray() -> Iterator[RayStandIn]:
    ray = RayStandIn()
    yield ray
    ray.close()


def opened(ray: RayStandIn, folder: Path, spec: str = "", clock: Clock | None = None) -> Side:
    clock = clock or SkippingClock()
    side = open_workload(spec or ray.spec, seed=0, state_dir=folder, clock=clock)
    ray.opened.append(side.close)
    return side


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
def side(ray: RayStandIn, tmp_path: Path, clock: SkippingClock) -> Side:
    return opened(ray, tmp_path, clock=clock)


@pytest.fixture
def later(ray: RayStandIn, clock: SkippingClock) -> Callable[[], None]:
    def pass_on() -> None:
        clock.sleep(5.0)
        with ray.lock:
            ray.latencies_ms += [15.0] * 50

    return pass_on


@pytest.fixture
def origin() -> Origin:
    return Origin.MEASURED


class TestDeploymentActuator(SettableContract):
    pass


class TestFiguresMeter(MeterContract):
    pass


class TestLoadMeter(MeterContract):
    @pytest.fixture
    def side(self, ray: RayStandIn, tmp_path: Path) -> Side:
        ray.gate.clear()
        return opened(ray, tmp_path, f"{ray.spec}#callers:2", HostClock())

    @pytest.fixture
    def later(self, ray: RayStandIn) -> Callable[[], None]:
        """Let 60 requests through, or wait until half a second passes without any."""

        def pass_on() -> None:
            ray.gate.set()
            before = seen = len(ray.latencies_ms)
            quiet_since = time.monotonic()
            while seen < before + 60 and time.monotonic() < quiet_since + 0.5:
                time.sleep(0.005)
                if len(ray.latencies_ms) > seen:
                    seen, quiet_since = len(ray.latencies_ms), time.monotonic()

        return pass_on


class TestSpace:
    def test_settings_that_fit_the_cluster_are_offered(self, side: Side) -> None:
        assert {k.name: k.values for k in side.space.knobs} == {
            "replicas": (1, 2, 3, 4),
            "num_cpus": (1, 2, 3, 4),
            "batch_size": (1, 2, 4, 8),
        }
        assert side.space.default == AS_FOUND
        # 4×1, 3×1, 2×1, 2×2 and 1×1 to 1×4, each with every batch size.
        assert side.space.size == 8 * 4
        assert side.space.knob("num_cpus").cost.restart
        assert not side.space.knob("replicas").cost.restart

    def test_foreign_load_and_machine_differences_are_left_out(self) -> None:
        nodes = [Node(state="ALIVE", resources_total={"CPU": 3.0})] * 2
        space = space_for({"replicas": 1, "num_cpus": 2}, CODE, nodes, taken=1.0)
        fits = {(s["replicas"], s["num_cpus"]) for s in space.grid()}
        assert (2, 2) in fits  # one replica on each machine
        assert (1, 3) in fits
        assert (5, 1) in fits
        assert (6, 1) not in fits  # one CPU is in use
        assert (1, 4) not in fits  # no machine has four free CPUs

    def test_a_large_cluster_is_offered_in_powers_of_two(self) -> None:
        nodes = [Node(state="ALIVE", resources_total={"CPU": 96.0})] * 4
        space = space_for({"replicas": 3, "num_cpus": 0.5}, CODE, nodes, taken=0.0)
        assert space.knob("replicas").values == (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 384)
        assert space.knob("num_cpus").values == (0.5, 1, 2, 4, 8, 16, 32, 64)
        assert space.size < 100

    def test_replicas_are_left_to_an_autoscaler(self, ray: RayStandIn, tmp_path: Path) -> None:
        ray.code = {**CODE, "num_replicas": None, "autoscaling_config": {"max_replicas": 4}}
        side = opened(ray, tmp_path)
        assert [k.name for k in side.space.knobs] == ["num_cpus", "batch_size"]
        assert "autoscal" in side.cannot["replicas"]

    def test_without_the_key_the_batch_size_is_missing(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        ray.declared["demo"] = {**DEMO, "deployments": []}
        ray.code = {**CODE, "user_config": None}
        side = opened(ray, tmp_path)
        assert [k.name for k in side.space.knobs] == ["replicas", "num_cpus"]
        assert "max_batch_size" in side.cannot["batch_size"]


class TestChanging:
    def test_only_the_knobs_of_the_deployment_change(self, ray: RayStandIn, side: Side) -> None:
        side.actuator.apply({"replicas": 2, "batch_size": 8})
        (sent,) = ray.puts
        assert sent["applications"][0] == OTHER
        assert sent["applications"][1] == {
            **DEMO,
            "deployments": [
                {
                    "name": "Model",
                    "num_replicas": 2,
                    "ray_actor_options": {"num_cpus": 1},
                    "user_config": {"max_batch_size": 8, "top_k": 5},
                }
            ],
        }
        assert sent["http_options"]["host"] == "0.0.0.0"
        assert sent["proxy_location"] == "EveryNode"

    def test_going_back_leaves_the_config_as_it_was(
        self, ray: RayStandIn, side: Side, tmp_path: Path
    ) -> None:
        side.actuator.apply({"replicas": 2, "batch_size": 8})
        assert (tmp_path / "ray-serve.json").exists()
        side.actuator.apply(AS_FOUND)
        assert ray.declared == {"demo": DEMO, "other": OTHER}
        assert not (tmp_path / "ray-serve.json").exists()

    def test_a_foreign_change_meanwhile_is_kept(self, ray: RayStandIn, side: Side) -> None:
        side.actuator.apply({"replicas": 2})
        entry = ray.declared["demo"]["deployments"][0]  # type: ignore[index]
        entry["user_config"] = {**entry["user_config"], "top_k": 9}
        side.actuator.apply(AS_FOUND)
        assert side.actuator.read() == AS_FOUND
        assert ray.whole["user_config"] == {"max_batch_size": 4, "top_k": 9}

    def test_an_older_ray_gets_every_value(self, ray: RayStandIn, side: Side) -> None:
        ray.restores = False
        side.actuator.apply({"replicas": 2})
        side.actuator.apply(AS_FOUND)
        assert ray.whole["num_replicas"] == 1
        assert side.actuator.read() == AS_FOUND

    def test_a_change_waits_for_every_replica(self, ray: RayStandIn, tmp_path: Path) -> None:
        clock = SkippingClock()
        side = opened(ray, tmp_path, clock=clock)
        ray.looks = 20
        side.actuator.apply({"replicas": 3})
        assert clock.now == pytest.approx(19 * actuator.LOOK_S)

    def test_without_free_cpus_a_change_fails_and_everything_is_restored(
        self, ray: RayStandIn, side: Side
    ) -> None:
        ray.busy = 2.0
        device = Side(
            name="d", kind="d", board="d", version="1", space=Space(()), metrics=(),
            actuator=NothingToSet(), meter=side.meter,
        )  # fmt: skip
        with pytest.raises(ActuationError) as caught:
            Target((device,), side).apply({**AS_FOUND, "replicas": 3})
        text = str(caught.value)
        assert "not at replicas=3 num_cpus=1 batch_size=4 after 75 s" in text
        assert "UPDATING, 2 of 3 replicas run: Deployment 'Model' has taken more than 30s" in text
        assert "is not back" not in text
        assert ray.declared["demo"] == DEMO

    def test_a_deployment_that_fails_is_not_waited_for(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        clock = SkippingClock()
        side = opened(ray, tmp_path, clock=clock)
        ray.looks = 1000
        ray.fails = "reconfigure raised KeyError: 'top_k'"
        with raised(ActuationError, "KeyError"):
            side.actuator.apply({"batch_size": 8})
        assert clock.now == 0.0

    def test_a_refusal_carries_rays_words(self, ray: RayStandIn, side: Side) -> None:
        ray.answers["PUT /api/serve/applications/"] = (400, b"1 validation error: num_replicas")
        with raised(ActuationError, "HTTP 400", "num_replicas"):
            side.actuator.apply({"replicas": 2})

    def test_hidden_secrets_are_never_written_back(self, ray: RayStandIn, tmp_path: Path) -> None:
        hidden = {**OTHER, "runtime_env": {"env_vars": {"TOKEN": "<redacted>"}}}
        ray.declared["other"] = hidden
        side = opened(ray, tmp_path)
        with raised(ActuationError, "config"):
            side.actuator.apply({"replicas": 2})
        assert ray.puts == []

    def test_an_application_that_goes_away_is_an_error(self, ray: RayStandIn, side: Side) -> None:
        gone = {**ray.instance(), "applications": {}}
        ray.answers["GET /api/serve/applications/"] = (200, json.dumps(gone).encode())
        with raised(ActuationError, "demo"):
            side.actuator.read()

    def test_a_device_is_not_changed_without_a_journal_on_disk(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        folder = tmp_path / "state"
        side = opened(ray, folder)
        folder.write_text("a file where the folder should be")
        with pytest.raises(Exception, match="cannot write"):
            side.actuator.apply({"replicas": 2})
        assert ray.puts == []


class TestCrashes:
    """The adapter is opened again without a restore: the default stays the first found value."""

    def crashed_at(self, ray: RayStandIn, folder: Path, **setting: Value) -> Side:
        opened(ray, folder).actuator.apply(setting)
        return opened(ray, folder)

    def test_the_original_is_known_over_a_crash(self, ray: RayStandIn, tmp_path: Path) -> None:
        side = self.crashed_at(ray, tmp_path, replicas=3, batch_size=1)
        assert side.actuator.read() == {"replicas": 3, "num_cpus": 1, "batch_size": 1}
        assert side.space.default == AS_FOUND
        side.actuator.apply(AS_FOUND)
        assert ray.declared["demo"] == DEMO
        assert opened(ray, tmp_path).space.default == AS_FOUND

    def test_a_crash_before_the_request_changes_nothing(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        ray.answers["PUT /api/serve/applications/"] = (500, b"killed here")
        with pytest.raises(ActuationError):
            opened(ray, tmp_path).actuator.apply({"replicas": 2})
        del ray.answers["PUT /api/serve/applications/"]
        side = opened(ray, tmp_path)
        assert side.actuator.read() == side.space.default == AS_FOUND

    def test_a_foreign_deployment_becomes_the_new_original(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        opened(ray, tmp_path).actuator.apply({"replicas": 3})
        entry = {"name": "Model", "num_replicas": 2}
        ray.declared["demo"] = {**DEMO, "deployments": [entry]}
        assert opened(ray, tmp_path).space.default["replicas"] == 2

    def test_the_version_depends_on_the_code_and_not_on_the_settings(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        before = opened(ray, tmp_path).version
        assert self.crashed_at(ray, tmp_path, replicas=3, num_cpus=1).version == before
        ray.declared["demo"] = {**DEMO, "runtime_env": {"pip": ["torch"]}}
        assert opened(ray, tmp_path).version != before

    def test_an_unreadable_file_is_named_and_nothing_is_changed(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        (tmp_path / "ray-serve.json").write_text('{"version": ')
        with raised(ActuationError, "ray-serve.json"):
            opened(ray, tmp_path)
        assert ray.puts == []


class TestFigures:
    def test_latencies_are_bounded_by_their_buckets(self, ray: RayStandIn, side: Side) -> None:
        ray.latencies_ms = [500.0] * 40  # before the window
        window = side.meter.start()
        with ray.lock:
            ray.latencies_ms += [15.0] * 396 + [70.0] * 4
        shown = window.stop()
        assert shown.totals["items"] == 400.0
        assert shown.estimates["latency_p50_ms"].low == 10.0
        assert shown.estimates["latency_p50_ms"].high == 20.0
        assert shown.estimates["latency_p99_ms"].high == 100.0
        assert shown.estimates["latency_p99_ms"].n == 400

    def test_values_beyond_the_last_bucket_are_unbounded(self, ray: RayStandIn, side: Side) -> None:
        window = side.meter.start()
        ray.latencies_ms = [5000.0] * 400
        shown = window.stop()
        assert shown.estimates["latency_p99_ms"].high == math.inf
        assert shown.estimates["latency_p99_ms"].low == 100.0

    def test_failures_have_no_latency(self, ray: RayStandIn, side: Side) -> None:
        window = side.meter.start()
        ray.failed = 7
        shown = window.stop()
        assert shown.totals["failed"] == 7.0
        assert not {name for name in shown.estimates if name.startswith("latency")}

    def test_rates_are_taken_between_lumps(self, ray: RayStandIn, tmp_path: Path) -> None:
        clock = SkippingClock()
        side = opened(ray, tmp_path, clock=clock)
        window = side.meter.start()
        for tick in range(13):  # 100 requests every 10 s, read every 2.5 s, first after 5 s
            clock.sleep(2.5)
            if tick % 4 == 1:
                ray.latencies_ms += [15.0] * 100
            shown = window.read()
        assert shown.totals["items"] == 300.0
        # Two steps are too few for a standard error: it then covers the counts that Ray may delay.
        assert shown.estimates["throughput_per_s"].mean == pytest.approx(300.0 / 32.5)
        assert shown.estimates["throughput_per_s"].high == pytest.approx(
            300.0 / 32.5 * (1 + 10.0 / 32.5)
        )
        for tick in range(4):
            clock.sleep(2.5)
            ray.latencies_ms += [15.0] * (100 if tick == 0 else 0)
            shown = window.read()
        assert shown.estimates["throughput_per_s"].mean == pytest.approx(10.0)
        assert shown.estimates["throughput_per_s"].stderr < 0.1
        assert shown.estimates["arrival_rate_per_s"].mean == pytest.approx(10.0)

    def test_counters_that_decrease_give_no_measurement(self, ray: RayStandIn, side: Side) -> None:
        ray.latencies_ms = [15.0] * 10
        window = side.meter.start()
        ray.latencies_ms = [15.0] * 3
        with pytest.raises(MeasurementError, match="went backwards"):
            window.read()

    def test_unavailable_metrics_give_no_measurement(self, ray: RayStandIn, side: Side) -> None:
        window = side.meter.start()
        ray.answers["GET /metrics"] = (503, b"")
        with raised(MeasurementError, "metrics"):
            window.read()


class TestAddresses:
    @pytest.mark.parametrize(
        "spec",
        [
            "ray:",
            "ray:http://127.0.0.1:8265",
            "ray:http://127.0.0.1:8265/demo",
            "ray:http://127.0.0.1/demo/Model",
            "ray:http://127.0.0.1:99999/demo/Model",
            "ray:https://127.0.0.1:8265/demo/Model",
            "ray:http://10.0.0.1:8265/demo/Model",
            "ray:http://127.0.0.1:8265/demo/Model/more",
        ],
    )
    def test_meaningless_input_is_refused(self, spec: str, tmp_path: Path) -> None:
        with raised(InvalidInput, "8265/APPLICATION/DEPLOYMENT"):
            open_workload(spec, seed=0, state_dir=tmp_path, clock=HostClock())

    @pytest.mark.parametrize("load", ["callers", "callers:0", "callers:-1", "body:x", "rate:5"])
    def test_a_load_that_cannot_be_meant_is_refused(
        self, ray: RayStandIn, load: str, tmp_path: Path
    ) -> None:
        with raised(InvalidInput, "#callers:4,body:FILE"):
            opened(ray, tmp_path, f"{ray.spec}#{load}")

    def test_a_body_that_is_not_there_is_refused(self, ray: RayStandIn, tmp_path: Path) -> None:
        with raised(InvalidInput, "body"):
            opened(ray, tmp_path, f"{ray.spec}#callers:1,body:{tmp_path}/none.json")

    def test_an_unknown_application_or_deployment_is_refused_with_the_existing_ones(
        self, ray: RayStandIn, tmp_path: Path
    ) -> None:
        with raised(InvalidInput, "dmeo"):
            opened(ray, tmp_path, f"ray:{ray.url}/dmeo/Model")
        with raised(InvalidInput, "Modle"):
            opened(ray, tmp_path, f"ray:{ray.url}/demo/Modle")

    def test_an_application_of_a_program_is_refused(self, ray: RayStandIn, tmp_path: Path) -> None:
        ray.declared["demo"] = None
        with raised(InvalidInput, "serve build"):
            opened(ray, tmp_path)

    def test_ray_that_does_not_run_is_lost(self, tmp_path: Path) -> None:
        ray = RayStandIn()
        ray.close()
        with raised(DeviceLost, "ray status"):
            opened(ray, tmp_path)

    @pytest.mark.parametrize(
        ("route", "content", "where"),
        [
            ("GET /api/serve/applications/", b"<html>", "Invalid JSON"),
            ("GET /api/serve/applications/", b'{"applications": {"a": 1}}', "applications.a"),
            ("GET /api/v0/nodes?detail=1", b'{"data": {}}', "data.result"),
            ("GET /api/version", b"{}", "ray_version"),
        ],
    )
    def test_answers_that_are_not_rays_are_named(
        self, ray: RayStandIn, tmp_path: Path, route: str, content: bytes, where: str
    ) -> None:
        ray.answers[route] = (200, content)
        with raised(ActuationError, where):
            opened(ray, tmp_path)

    def test_the_load_sends_the_body_to_the_route(self, ray: RayStandIn, tmp_path: Path) -> None:
        body = tmp_path / "request.json"
        body.write_text("[1, 2]")
        spec = f"{ray.spec}#callers:1,body:{body}"
        side = opened(ray, tmp_path, spec, HostClock())
        assert "closed loop of 1" in side.source
        window = side.meter.start()
        while window.read().totals["items"] < 60:
            time.sleep(0.01)
        shown = window.stop()
        assert shown.totals["failed"] == 0.0
        assert shown.estimates["latency_p99_ms"].n == shown.totals["items"]


class TestProcesses:
    def test_the_time_of_all_that_the_raylet_started_is_counted(self, tmp_path: Path) -> None:
        raylet = tmp_path / "raylet"
        shutil.copy(shutil.which("bash") or "bash", raylet)
        burn = (
            "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ntime.sleep(60)"
        )
        command = f"{sys.executable} -c '{burn}' & echo $!; wait"
        started = subprocess.Popen([raylet, "-c", command], stdout=subprocess.PIPE, text=True)
        assert started.stdout is not None
        try:
            replica = int(started.stdout.readline())
            processes = RayProcesses(replica)
            started.stdout.readline()
            assert 0.25 <= processes.cpu_s() < 5.0
        finally:
            os.kill(replica, 9)
            started.wait(10)
            started.stdout.close()
        with pytest.raises(MeasurementError, match="Ray has ended"):
            processes.cpu_s()

    def test_a_process_of_another_program_is_not_taken_for_a_replica(self) -> None:
        with raised(MeasurementError, "Ray"):
            RayProcesses(os.getpid())

    def test_without_a_replicas_process_the_cpu_time_is_unknown(self, side: Side) -> None:
        assert "cpu_time_ms" not in {metric.name for metric in side.metrics}
        assert "not a Ray replica" in side.cannot["cpu_time_ms"]


def test_settings_beyond_the_cluster_are_refused_before_a_request_to_ray(
    ray: RayStandIn, side: Side
) -> None:
    for setting in ({"replicas": 5}, {"replicas": 3, "num_cpus": 2}):
        with pytest.raises(OutOfRange):
            side.actuator.apply(setting)
    assert ray.puts == []


def test_ray_is_not_imported() -> None:
    program = (
        "import sys, agents.workloads.ray\n"
        "sys.exit(','.join({'ray', 'torch', 'numpy', 'fastapi'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
