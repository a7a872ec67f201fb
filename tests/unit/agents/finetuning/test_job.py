"""A fine-tuning job is paused, measured and ended; whichever process is killed, it is never left paused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.finetuning.job import FineTuningJob
from agents.host.machine import HostClock
from tests.errors import raised
from tests.processes import gone, parent, stopped, until
from tuner.core import InvalidInput

STEPS = """
import json, os, sys, time
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
print("loading", flush=True)
steps = 0
while True:
    steps += 1
    print(json.dumps({"steps": steps, "gflop": 2.0 * steps}), flush=True)
    time.sleep(0.005)
"""
OWNER = """
import sys, time
from agents.finetuning.job import FineTuningJob
from agents.host.machine import HostClock
job = FineTuningJob(sys.argv[1:], HostClock())
job.let(run=True)
while not job.totals()["steps"]:
    time.sleep(0.01)
job.let(run=False)
print(job.pid, flush=True)
time.sleep(600)
"""

PARENT = """
import signal, subprocess, sys
worker = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: (worker.kill(), sys.exit(1)))
worker.wait()
"""
DAEMON = """
import pathlib, subprocess, sys, time
subprocess.Popen(sys.argv[1:])
while not (pathlib.Path(sys.argv[-1]).exists() and pathlib.Path(sys.argv[-1]).read_text()):
    time.sleep(0.01)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    return [sys.executable, "-c", STEPS, str(tmp_path / "pid")]


@pytest.fixture
def job(command: list[str]) -> Iterator[FineTuningJob]:
    started = FineTuningJob(command, HostClock())
    yield started
    started.close()


def trained(command: list[str]) -> int:
    """Return the process id of the job once it has made a step."""
    file = Path(command[-1])
    until(lambda: file.exists() and file.read_text(), "no step was made")
    return int(file.read_text())


def test_it_begins_paused_and_counts_its_printed_totals(
    job: FineTuningJob, command: list[str]
) -> None:
    assert not job.running
    job.let(run=True)
    until(lambda: job.totals()["steps"] >= 3, "no steps")
    totals = job.totals()
    assert totals["gflop"] == 2.0 * totals["steps"]
    assert totals["ran_s"] > 0.0
    job.let(run=False)
    pid = trained(command)
    until(lambda: stopped(pid), "it is not paused")
    ran_s = job.totals()["ran_s"]
    assert job.totals()["ran_s"] == ran_s
    job.let(run=True)
    until(lambda: not stopped(pid), "it is still paused")


def test_ctrl_c_in_a_terminal_does_not_reach_the_supervisor(job: FineTuningJob) -> None:
    assert os.getpgid(job.pid) != os.getpgid(os.getpid())


def test_closing_a_paused_job_ends_it(job: FineTuningJob, command: list[str]) -> None:
    job.let(run=True)
    pid = trained(command)
    job.let(run=False)
    until(lambda: stopped(pid), "it is not paused")
    job.close()
    until(lambda: gone(pid), "it still runs")


@pytest.mark.promise("the process that paces fine-tuning is killed", "the job ends")
def test_a_job_whose_owner_is_killed_is_not_left_paused(command: list[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, *command], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        pid = trained(command)
        until(lambda: stopped(pid), "it is not paused")
        owner.kill()
    until(lambda: gone(pid), "it was left paused, or goes on unpaced")


@pytest.mark.promise(
    "the process that paces fine-tuning is killed", "its workers end with it, paused or not"
)
@pytest.mark.parametrize("running", [False, True])
def test_a_job_whose_supervisor_is_killed_ends_with_its_workers(
    command: list[str], *, running: bool
) -> None:
    job = FineTuningJob([sys.executable, "-c", PARENT, *command], HostClock())
    job.let(run=True)
    pid = trained(command)
    supervisor = parent(pid)
    if not running:
        job.let(run=False)
        until(lambda: stopped(pid) and stopped(supervisor), "it is not paused")
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: gone(supervisor, pid), "it was left paused, or goes on unpaced")
    job.close()


def test_no_worker_survives_the_job(command: list[str]) -> None:
    job = FineTuningJob([sys.executable, "-c", DAEMON, *command], HostClock())
    job.let(run=True)
    pid = trained(command)
    until(lambda: job.ended and gone(pid), "it goes on unpaced")
    assert job.close() == 0


def test_other_output_than_totals_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    printed = b'\xff epoch 1\n[1]\n{"steps": NaN}\n{"steps": 2}\n'
    code = f"import sys; sys.stdout.buffer.write({printed!r})"
    job = FineTuningJob([sys.executable, "-c", code], HostClock())
    job.let(run=True)
    until(lambda: job.ended, "it does not end")
    assert job.close() == 0
    assert job.totals()["steps"] == 2.0
    assert capfd.readouterr().err == '\ufffd epoch 1\n[1]\n{"steps": NaN}\n'


def test_an_ended_job_is_reported() -> None:
    job = FineTuningJob([sys.executable, "-c", "raise SystemExit(3)"], HostClock())
    job.let(run=True)
    until(lambda: job.ended, "it does not end")
    job.let(run=False)
    assert job.close() == 3


def test_a_missing_program_has_its_own_status() -> None:
    job = FineTuningJob(["/nowhere/tune"], HostClock())
    until(lambda: job.ended, "it does not end")
    assert job.close() == 127


def test_a_job_without_a_command_is_refused() -> None:
    with raised(InvalidInput, "after --"):
        FineTuningJob([], HostClock())
