"""The process of a job's lease, at an actuator whose devices may hang."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.grants import load_config
from agents.job import keeper as keeper_module
from agents.job.keeper import JobKeeper
from agents.job.main import begin, main
from agents.job.record import JobRecords
from agents.job.slurm import job_of

LIMIT = "gpu.power_limit_w"
GPUS = ("X-1", "X-2")


class Actuator:
    """It answers each connection in a thread; a request for a device in `hung` waits."""

    def __init__(self, folder: Path) -> None:
        self.path, self.jobs, self.hung = folder / "a.sock", dict[str, str](), set[str]()
        self.renewed, self.freed = dict.fromkeys(GPUS, 0), threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._lines = list[socket.socket]()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._lines.append(self._listener.accept()[0])
            except OSError:
                return
            threading.Thread(target=self._serve, args=(self._lines[-1],), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line, line.makefile("rwb") as file:
            for text in file:
                answer = {"ok": True} | self._answer(**json.loads(text))
                file.write(json.dumps(answer).encode() + b"\n")
                file.flush()

    def _answer(self, verb: str, device: str = "", job: str = "", **_: object) -> dict[str, Any]:
        if verb == "capabilities":
            granted = {"driver": "fake:x", "granted": {LIMIT: [100, 300]}}
            return {"devices": [{"uuid": uuid, **granted} for uuid in GPUS]}
        if device in self.hung:
            self.freed.wait(30.0)
        if verb == "end_job":
            self.jobs.pop(device, None)
            return {}
        holder = self.jobs.setdefault(device, job)
        if holder != job:
            return {"ok": False, "code": "device_busy", "message": f"leased to {holder}"}
        self.renewed[device] += 1
        return {"renewed": True}

    def close(self) -> None:
        self.freed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Node:
    """The jobs of one node."""

    def __init__(self, folder: Path, actuator: Actuator) -> None:
        self.folder, self.actuator = folder, actuator
        self.records = JobRecords(folder / "jobs")
        self.config = folder / "actuator.toml"
        text = f'socket = "{actuator.path}"\n[job.grant]\n"{LIMIT}" = {{min=100, max=300}}\n'
        self.config.write_text(text)

    def environ(self, job: int, **changed: str) -> dict[str, str]:
        ours = {"JOULETUNE_JOB_GPUS": ",".join(GPUS), "JOULETUNE_ROOT": str(self.folder)}
        wish = {"SLURM_JOB_COMMENT": f"jouletune:{LIMIT}=200", "SLURM_JOB_UID": "1000"}
        return {"SLURM_JOB_ID": f"{job}", **wish, **ours, **changed}

    def begin(self, job: int, **changed: str) -> None:
        begin(self.environ(job, **changed), self.config, self.records, self.folder / "holds")

    def keep(self, job: int, answer: int) -> threading.Thread:
        wish, config = {LIMIT: 200}, load_config(self.config)
        one = JobKeeper(job_of(self.environ(job)), wish, config, self.records)
        thread = threading.Thread(target=one.keep, args=(answer,), daemon=True)
        thread.start()
        return thread

    def record(self, key: str) -> dict[str, Any]:
        path = self.records.folder / f"{key}.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(keeper_module, "BEAT_S", 0.05)
    actuator = Actuator(tmp_path)
    yield Node(tmp_path, actuator)
    actuator.close()


def until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_hung_device_delays_no_other_one(node: Node) -> None:
    heard, answer = os.pipe()
    thread = node.keep(1, answer)
    assert os.read(heard, 64) == b"leased"
    node.actuator.hung.add("X-1")
    time.sleep(0.2)
    before = node.actuator.renewed["X-2"]
    until(lambda: node.actuator.renewed["X-2"] > before + 3)
    node.records.end("the epilog", "1-0", within_s=0.01)
    until(lambda: node.actuator.jobs == {"X-1": "1-0"})
    assert node.record("1-0")["state"] == "leased"
    node.actuator.freed.set()
    thread.join(20.0)
    record = node.record("1-0")
    assert (record["state"], record["ended_by"]) == ("ended", "the epilog")
    assert {*record["energy"]} == {*GPUS} and node.actuator.jobs == {}
    for end in (heard, answer):
        os.close(end)


def test_a_lease_without_a_waiting_prolog_is_never_noted(node: Node) -> None:
    heard, answer = os.pipe()
    os.close(heard)
    node.keep(1, answer).join(20.0)
    os.close(answer)
    assert node.record("1-0") == {} and node.actuator.jobs == {}
    assert not [*node.records.folder.glob("*.sock")]


def test_a_device_that_hangs_at_the_start_leaves_the_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "BEGIN_S", 0.3)
    node.actuator.hung.add("X-1")
    heard, answer = os.pipe()
    thread = node.keep(1, answer)
    assert b"X-1: no lease" in os.read(heard, 256)
    until(lambda: "X-2" not in node.actuator.jobs)
    node.actuator.freed.set()
    thread.join(20.0)
    assert node.record("1-0") == {} and node.actuator.jobs == {}
    for end in (heard, answer):
        os.close(end)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_the_process_restores_the_devices(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: object) -> bool:
        raise RuntimeError(job)

    monkeypatch.setattr(keeper_module, "seen", broken)
    heard, answer = os.pipe()
    node.keep(1, answer).join(20.0)
    assert (node.record("1-0")["state"], node.actuator.jobs) == ("ended", {})
    for end in (heard, answer):
        os.close(end)


def test_a_search_for_killed_processes_ends_no_lease(node: Node) -> None:
    heard, answer = os.pipe()
    thread = node.keep(1, answer)
    until(lambda: node.record("1-0").get("state") == "leased")
    for _ in range(3):
        node.records.prune()
    time.sleep(0.3)
    assert {*node.actuator.jobs} == {*GPUS} and node.record("1-0")["state"] == "leased"
    assert node.records.end("the epilog", "1-0") == ["1-0"]
    thread.join(20.0)
    assert node.actuator.jobs == {}
    for end in (heard, answer):
        os.close(end)


def test_the_next_job_on_a_gpu_ends_a_left_lease(node: Node) -> None:
    node.begin(1)
    until(lambda: node.record("1-0").get("state") == "leased")
    node.begin(2)
    until(lambda: node.record("2-0").get("state") == "leased")
    assert node.record("1-0")["state"] == "ended"
    assert {*node.actuator.jobs.values()} == {"2-0"}
    assert node.records.end("the epilog", "2-0") == ["2-0"]


def test_a_wish_for_a_gpu_that_lacks_it_is_refused_on_all(node: Node) -> None:
    node.begin(1, JOULETUNE_JOB_GPUS="X-1,X-9")
    assert node.record("1-0")["state"] == "refused" and node.actuator.jobs == {}
    assert node.record("1-0")["reason"].startswith(f"X-9: {LIMIT} is not granted there")


@pytest.mark.parametrize("arguments", [[], ["bgin"], ["end", "a", "b", "c", "d"]])
def test_another_command_is_refused_and_drains_no_node(
    arguments: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(arguments) == 0
    assert "is no command; begin or end" in caplog.text


def test_an_unusual_form_of_gpus_matters_only_to_jobs_with_a_wish(node: Node) -> None:
    mig = {"SLURM_JOB_GPUS": "0:1", "JOULETUNE_JOB_GPUS": ""}
    node.begin(1, SLURM_JOB_COMMENT="", **mig)
    assert node.record("1-0") == {}
    (node.folder / "slurm.conf").write_text("PrologFlags=Alloc\n")
    node.begin(2, SLURM_CONF=str(node.folder / "slurm.conf"), **mig)
    assert node.record("2-0")["state"] == "refused"
    assert "SLURM_JOB_GPUS is '0:1'" in node.record("2-0")["reason"]
