"""The adapter against a real Ray on this machine: `make test-ray`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from agents.host.host import HostClock
from agents.load.generator import LoadRun, LoadShape
from agents.load.http_caller import HttpCaller
from agents.load.meter import shown_by
from agents.target.side import NothingToSet, Side
from agents.target.target import Target
from agents.workloads import open_workload
from agents.workloads.ray import actuator
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import MeterContract
from tests.rayserve.conftest import ROOT, Cluster, model
from tuner.core import ActuationError, InvalidInput, Origin, Space

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

AS_FOUND = {"replicas": 1, "num_cpus": 1, "batch_size": 2}
BYSTANDER = {
    "name": "bystander",
    "route_prefix": "/bystander",
    "import_path": "tests.rayserve.app:bystander",
    "deployments": [{"name": "Bystander", "ray_actor_options": {"num_cpus": 0}}],
}


def opened(cluster: Cluster, folder: Path, load: str = "") -> Side:
    return open_workload(cluster.spec + load, seed=0, state_dir=folder, clock=HostClock())


@pytest.fixture(scope="session")
def demo(cluster: Cluster) -> Cluster:
    cluster.deploy(model(), BYSTANDER)
    return cluster


@pytest.fixture
def side(demo: Cluster, tmp_path: Path) -> Iterator[Side]:
    side = opened(demo, tmp_path, "#callers:2")
    yield side
    side.actuator.apply(side.space.default)
    side.close()


class TestActuator(SettableContract):
    pass


class TestLoadMeter(MeterContract):
    @pytest.fixture
    def later(self) -> Callable[[], None]:
        return lambda: time.sleep(1.0)

    @pytest.fixture
    def origin(self) -> Origin:
        return Origin.MEASURED


def test_a_change_is_live_and_affects_no_other(demo: Cluster, side: Side) -> None:
    before = demo.applications()
    side.actuator.apply({"replicas": 2})
    there = demo.applications()
    replicas = there["demo"]["deployments"]["Model"]["replicas"]
    assert [replica["state"] for replica in replicas] == ["RUNNING", "RUNNING"]
    assert there["bystander"]["deployments"] == before["bystander"]["deployments"]
    side.actuator.apply(AS_FOUND)
    configs = {name: app["deployed_app_config"] for name, app in demo.applications().items()}
    assert configs == {name: app["deployed_app_config"] for name, app in before.items()}


def test_a_replica_has_as_many_threads_as_cpus(demo: Cluster, side: Side) -> None:
    url = f"http://127.0.0.1:{demo.proxy}/demo"
    for cpus in (2, 1):
        side.actuator.apply({"num_cpus": cpus})
        answer = httpx2.post(url, timeout=20.0, trust_env=False).json()
        assert answer["threads"] == str(cpus)


def test_batches_become_as_large_as_they_are_set(demo: Cluster, side: Side) -> None:
    url = f"http://127.0.0.1:{demo.proxy}/demo"
    with httpx2.Client(timeout=20.0, trust_env=False) as client, ThreadPoolExecutor(8) as pool:
        for size in (1, 4):
            side.actuator.apply({"batch_size": size})
            answers = pool.map(lambda _: client.post(url).json(), range(80))
            assert max(answer["batch"] for answer in answers) == size


def test_a_refused_deployment_fails_with_its_message_and_is_restored(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.deploy(model(user_config={"max_batch_size": 2, "too_much": 8}), BYSTANDER)
    side = opened(cluster, tmp_path)
    monkeypatch.setattr(actuator, "CHANGE_S", 30.0)
    with pytest.raises(ActuationError, match="no memory for such a batch") as caught:
        paired(side).apply({**AS_FOUND, "batch_size": 8})
    assert "is not back" not in str(caught.value)
    assert side.actuator.read() == AS_FOUND
    cluster.deploy(model(), BYSTANDER)
    side.close()


def test_with_all_cpus_taken_a_change_fails_in_time_and_is_restored(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.deploy(model(), BYSTANDER)
    side = opened(cluster, tmp_path)
    assert {"replicas": 2, "num_cpus": 1, "batch_size": 2} in list(side.space.grid())
    busy = {**BYSTANDER, "deployments": [{"name": "Bystander"}]}  # one CPU is Ray's default
    cluster.deploy(model(), busy)
    monkeypatch.setattr(actuator, "CHANGE_S", 6.0)
    with pytest.raises(ActuationError) as caught:
        paired(side).apply({**AS_FOUND, "replicas": 2})
    assert "after 6 s: UPDATING, 1 of 2 replicas run" in str(caught.value) or (
        "after 6 s: UPSCALING, 1 of 2 replicas run" in str(caught.value)
    )
    assert "is not back" not in str(caught.value)
    assert side.actuator.read() == AS_FOUND
    cluster.deploy(model(), BYSTANDER)
    side.close()


def test_rays_own_figures_are_those_of_the_requests(demo: Cluster, tmp_path: Path) -> None:
    side = opened(demo, tmp_path)
    time.sleep(side.settle_s)
    window = side.meter.start()

    def connect() -> HttpCaller:
        return HttpCaller("127.0.0.1", demo.proxy, "/demo")

    run = LoadRun(connect, LoadShape(2), clock=HostClock(), max_requests=400)
    tally = run.wait()
    end = time.monotonic() + 15.0
    while (shown := window.read()).totals["items"] < 400:
        assert time.monotonic() < end, "Ray does not tell of every request"
        time.sleep(0.5)
    seen = shown_by(tally)
    assert tally.failed == 0
    assert shown.totals["items"] == 400.0
    assert shown.totals["failed"] == 0.0
    # The proxy does not see the time of client and network: one bucket lower is possible.
    assert shown.estimates["latency_p50_ms"].low <= seen["latency_p50_ms"].mean
    assert shown.estimates["latency_p99_ms"].low <= seen["latency_p99_ms"].high
    assert shown.totals["cpu_s"] > 0.0
    window.stop()
    side.close()


CRASH = """
import os, sys, time
from pathlib import Path
from agents.workloads import open_workload
side = open_workload(sys.argv[1], seed=0, state_dir=Path(sys.argv[2]), clock=HostClock())
side.actuator.apply({"replicas": 2, "batch_size": 4})
os.kill(os.getpid(), 9)
"""


def test_killed_in_a_trial_the_original_is_still_known(demo: Cluster, tmp_path: Path) -> None:
    before = demo.applications()["demo"]["deployed_app_config"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CRASH, demo.spec, str(tmp_path)]
    assert subprocess.run(command, env=environ, check=False).returncode == -9
    side = opened(demo, tmp_path)
    assert side.actuator.read() == {"replicas": 2, "num_cpus": 1, "batch_size": 4}
    assert side.space.default == AS_FOUND
    side.actuator.apply(AS_FOUND)
    assert demo.applications()["demo"]["deployed_app_config"] == before
    side.close()


def test_missing_things_are_reported(demo: Cluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="available: "):
        open_workload(
            demo.spec.replace("/demo/", "/dmeo/"), seed=0, state_dir=tmp_path, clock=HostClock()
        )


def paired(side: Side) -> Target:
    device = Side(
        name="none",
        kind="none",
        board="none",
        version="1",
        space=Space(()),
        metrics=(),
        actuator=NothingToSet(),
        meter=side.meter,
    )
    return Target((device,), side)
