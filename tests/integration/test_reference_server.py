from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import psutil
import pytest

from agents.host.machine import HostClock
from agents.load.generator import LoadRun
from agents.target.side import Restartable
from agents.workloads import open_workload
from agents.workloads.reference.allocators import allocators
from tests.integration.reference import COMMAND, Running
from tests.processes import gone, listed, until
from tuner.core import MeasurementError

pytest.importorskip("torch", reason="the reference workload needs torch")

CORES = sorted(os.sched_getaffinity(0))
KEEPS: dict[str, object] = {"allocator": "glibc-keep"} if allocators() else {}
DEFAULT = {"instances": 1, "threads": len(CORES), "batch_size": 1, **KEEPS}
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    running = Running()
    yield running
    running.close()


@pytest.fixture
def server(running: Running) -> Running:
    """The shared server, reset to its default setting."""
    assert running.put(**DEFAULT).status_code == 200
    return running


def gets_on(run: LoadRun) -> None:
    answered = len(run.read().latencies_s)
    until(lambda: len(run.read().latencies_s) > answered + 5, "no more answers")


def test_the_server_starts_with_one_instance_on_all_cores(server: Running) -> None:
    knobs = server.get("/knobs")
    assert knobs["setting"] == DEFAULT
    assert {k["name"] for k in knobs["knobs"]} == set(DEFAULT)
    assert all(s["instances"] * s["threads"] <= len(CORES) for s in knobs["only"])
    (worker,) = server.workers()
    assert os.sched_getaffinity(worker) == set(CORES)


@two_cores
def test_instances_are_processes_on_separate_cores(server: Running) -> None:
    server.kill_spares()
    (first,) = server.workers()
    before = server.get("/stats")["cpu_s"]
    reply = server.put(instances=2, threads=1).json()
    assert reply["setting"] == {"instances": 2, "threads": 1, "batch_size": 1, **KEEPS}
    assert reply["switch"]["starting_s"] > reply["switch"]["draining_s"] > 0.0
    assert server.get("/stats")["switch"] == reply["switch"]
    workers = server.workers()
    assert len(workers) == 2 and first not in workers
    held = [os.sched_getaffinity(pid) for pid in workers]
    assert all(len(cores) == 1 for cores in held)
    assert held[0].isdisjoint(held[1])
    server.put(instances=1)
    (staying,) = server.workers()
    assert staying in workers
    assert set(server.get("/stats")["spare_pids"]) == {first, *workers} - {staying}
    # Starting a worker takes over half a second of CPU; it still counts when the worker has ended.
    server.kill_spares()
    assert server.get("/stats")["cpu_s"] > before + 0.5


@two_cores
def test_a_change_back_needs_no_new_process(server: Running) -> None:
    server.put(instances=2, threads=1)
    processes = set(server.get("/stats")["pids"])
    assert server.put(**DEFAULT).json()["setting"] == DEFAULT
    server.put(instances=2, threads=1)
    server.put(**DEFAULT)
    assert set(server.get("/stats")["pids"]) == processes
    (worker,) = server.workers()
    tasks = [*map(int, listed(worker, "task"))]
    assert {frozenset(os.sched_getaffinity(task)) for task in tasks} == {frozenset(CORES)}


@pytest.mark.skipif(not KEEPS, reason="the C library is not glibc")
def test_another_allocator_takes_over_without_a_lost_request_and_memory_is_reported(
    server: Running,
) -> None:
    run = server.load()
    gets_on(run)
    (first,) = server.workers()
    switch = server.put(allocator="glibc").json()["switch"]
    assert switch["failed"] == 0 and switch["setting"] == {**DEFAULT, "allocator": "glibc"}
    (other,) = server.workers()
    assert other != first
    gets_on(run)
    assert run.stop(grace_s=30.0).failures == {}
    assert server.get("/stats")["resident_bytes"] > 1 << 20


@two_cores
@pytest.mark.slow
def test_killed_spares_cost_no_request(server: Running) -> None:
    server.put(instances=2, threads=1)
    run = server.load()
    gets_on(run)
    server.kill_spares()
    gets_on(run)
    assert server.put(**DEFAULT).json()["switch"]["failed"] == 0
    assert run.stop(grace_s=30.0).failures == {}


@two_cores
def test_every_thread_of_a_worker_is_on_its_cores(server: Running) -> None:
    assert server.put(threads=1, batch_size=2).status_code == 200
    (worker,) = server.workers()
    tasks = [*map(int, listed(worker, "task"))]
    assert {frozenset(os.sched_getaffinity(task)) for task in tasks} == {frozenset(CORES[:1])}
    assert {os.getpriority(os.PRIO_PROCESS, task) for task in tasks} == {os.getpriority(0, 0)}
    assert "switch" not in server.put(batch_size=4).json()
    assert server.workers() == [worker]


@two_cores
def test_oversubscription_is_refused_and_changes_nothing(server: Running) -> None:
    workers = server.workers()
    refused = server.put(instances=2)
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "out_of_range"
    assert server.get("/knobs")["setting"] == DEFAULT
    assert server.workers() == workers


def test_cpu_time_is_that_of_all_its_processes(server: Running) -> None:
    def seen() -> float:
        times = [psutil.Process(p).cpu_times() for p in server.get("/stats")["pids"]]
        return float(sum(t.user + t.system for t in times))

    before_s, counted = server.get("/stats")["cpu_s"], seen()
    run = server.load()
    time.sleep(1.0)
    run.stop()
    used = server.get("/stats")["cpu_s"] - before_s
    assert used > 0.2
    # /proc counts ticks of 10 ms, and the readings are some milliseconds apart.
    assert used == pytest.approx(seen() - counted, abs=0.1)


def test_a_batch_answers_as_single_requests_do(server: Running) -> None:
    def label(item: int) -> int:
        answer = server.client.post("/infer", json={"item": item}).raise_for_status()
        return int(answer.json()["label"])

    alone = [label(item) for item in range(16)]
    assert len(set(alone)) > 1
    server.put(batch_size=8)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(label, range(16))) == alone


def test_no_request_is_lost_while_knobs_change_under_load(server: Running) -> None:
    before = server.get("/stats")
    run = server.load(callers=6)
    for batch_size in (2, 8, 1, 16, 4):
        assert server.put(batch_size=batch_size).status_code == 200
        gets_on(run)
    switches = 0
    if len(CORES) > 1:
        for change in ({"instances": 2, "threads": 1}, {"instances": 1}, {"threads": 2}):
            assert server.put(**change).json()["switch"]["failed"] == 0
            switches += 1
    tally = run.stop(grace_s=30.0)
    after = server.get("/stats")
    assert after["switches"] == before["switches"] + switches
    assert tally.failures == {}
    assert len(tally.latencies_s) == after["items"] - before["items"] > 25
    assert after["failed"] == before["failed"]


@two_cores
def test_a_killed_worker_has_its_batch_done_by_another(server: Running) -> None:
    server.put(instances=2, threads=1)
    before = server.get("/stats")
    run = server.load(callers=6)
    gets_on(run)
    os.kill(server.workers()[0], signal.SIGKILL)
    until(lambda: server.get("/stats")["serving"] == 1)
    until(lambda: server.get("/stats")["serving"] == 2)
    tally = run.stop(grace_s=30.0)
    assert tally.failures == {}
    assert len(tally.latencies_s) == server.get("/stats")["items"] - before["items"]


@two_cores
def test_a_new_set_killed_in_mid_switch_leaves_the_old_one_serving(server: Running) -> None:
    server.kill_spares()
    (old,) = server.workers()
    run = server.load()
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(server.put, instances=2, threads=1)
        until(lambda: len(server.workers()) == 3)
        for worker in server.workers():
            if worker != old:
                os.kill(worker, signal.SIGKILL)
        refused = change.result(60.0)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "device_lost"
    assert "ended" in refused.json()["error"]["message"]
    gets_on(run)
    assert run.stop(grace_s=30.0).failures == {}
    assert server.workers() == [old]
    assert server.get("/knobs")["setting"] == DEFAULT


def test_a_killed_worker_fails_its_requests_and_is_replaced(server: Running) -> None:
    server.kill_spares()
    (worker,) = server.workers()
    before = server.get("/stats")
    run = server.load()
    until(lambda: len(run.read().latencies_s) > 10)
    os.kill(worker, signal.SIGKILL)
    until(lambda: run.read().failed > 0)
    answer = server.client.post("/infer")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] in ("instance_died", "no_instance")
    gets_on(run)
    tally = run.stop(grace_s=30.0)
    after = server.get("/stats")
    assert set(tally.failures) == {"HTTP 503"}
    assert len(tally.arrived_at_s) == len(tally.latencies_s) + tally.failed
    assert len(tally.latencies_s) == after["items"] - before["items"]
    assert tally.failed + 1 == after["failed"] - before["failed"]
    assert after["cpu_s"] > before["cpu_s"]
    assert server.workers() != [worker]
    assert server.get("/knobs")["setting"] == DEFAULT


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("PUT", "/knobs", b"{", 400, "malformed_json"),
        ("PUT", "/knobs", b"\xff", 400, "malformed_json"),
        ("PUT", "/knobs", b"[" * 50_000, 400, "malformed_json"),
        ("PUT", "/knobs", b"[]", 422, "invalid_input"),
        ("PUT", "/knobs", b'{"treads": 1}', 422, "unknown_knob"),
        ("PUT", "/knobs", b'{"batch_size": 3}', 422, "out_of_range"),
        ("PUT", "/knobs", b'{"batch_size": true}', 422, "out_of_range"),
        ("PUT", "/knobs", b'{"batch_size": NaN}', 422, "out_of_range"),
        ("PUT", "/knobs", b'{"batch_size": [1]}', 422, "out_of_range"),
        ("PUT", "/knobs", b'{"batch_size": 2, "threads": 0}', 422, "out_of_range"),
        ("PUT", "/knobs", b" " * 70_000, 413, "too_large"),
        ("POST", "/infer", b"nonsense", 400, "malformed_json"),
        ("POST", "/infer", b'{"item": -1}', 422, "invalid_input"),
        ("POST", "/infer", b'{"item": "cat"}', 422, "invalid_input"),
        ("DELETE", "/knobs", b"", 405, "method_not_allowed"),
        ("GET", "/stats?inside=many", b"", 422, "invalid_input"),
        ("GET", "/stats?inside=2&within_s=-1", b"", 422, "invalid_input"),
        ("GET", "/stats?inside=nan", b"", 422, "invalid_input"),
        ("GET", "/nowhere", b"", 404, "not_found"),
    ],
)
def test_bad_input_is_refused_with_a_code(
    server: Running, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    answer = server.client.request(method, path, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"]
    assert server.get("/knobs")["setting"] == DEFAULT


def test_a_foreign_name_is_refused(server: Running) -> None:
    answer = server.client.get("/knobs", headers={"Host": "evil.example"})
    assert answer.status_code == 400


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: " in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
def test_workers_end_with_their_server(number: signal.Signals, status: int) -> None:
    running = Running()
    if len(CORES) > 1:
        running.put(threads=1)
    workers = [pid for pid in running.get("/stats")["pids"] if pid != running.process.pid]
    assert len(workers) == min(2, len(CORES)) and not any(map(gone, workers))
    os.kill(running.process.pid, number)
    assert running.process.wait(20) == status
    until(lambda: gone(*workers))
    running.close()


def test_opened_by_the_agent_it_serves_is_measured_and_ends_on_close(tmp_path: Path) -> None:
    workload = open_workload("reference", seed=0, state_dir=tmp_path, clock=HostClock())
    try:
        assert workload.space.default == DEFAULT
        workload.actuator.apply({"batch_size": 4})
        assert workload.actuator.read() == {**DEFAULT, "batch_size": 4}
        window = workload.meter.start()
        until(lambda: window.read().totals["items"] >= 45)
        shown = window.stop()
        assert shown.estimates["latency_p50_ms"].mean > 0.0
        assert shown.totals["failed"] == 0.0
        assert shown.totals["cpu_s"] > 0.0
        pids = httpx2.get(f"{workload.board}/stats", trust_env=False).json()["pids"]
    finally:
        workload.close()
    assert gone(*pids)
    workload.close()


def test_a_killed_server_is_restarted_at_its_setting_and_reported(tmp_path: Path) -> None:
    workload = open_workload("reference", seed=0, state_dir=tmp_path, clock=HostClock())
    try:
        assert isinstance(workload.actuator, Restartable)
        before = workload.actuator.incarnation()
        workload.actuator.apply({"batch_size": 4})
        window = workload.meter.start()
        until(lambda: window.read().totals["items"] > 0)
        pids = httpx2.get(f"{workload.board}/stats", trust_env=False).json()["pids"]
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: gone(*pids))
        with pytest.raises(MeasurementError, match="does not answer"):
            window.stop()
        assert workload.actuator.read() == DEFAULT
        assert workload.actuator.incarnation() != before
        workload.actuator.apply({"batch_size": 4})
        assert workload.actuator.read() == {**DEFAULT, "batch_size": 4}
        pids = httpx2.get(f"{workload.board}/stats", trust_env=False).json()["pids"]
    finally:
        workload.close()
    assert gone(*pids)
