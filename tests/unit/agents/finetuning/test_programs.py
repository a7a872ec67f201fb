"""The signal of a job beside the inference, by a lock that the kernel releases."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agents.finetuning.job import FineTuningJob
from agents.finetuning.programs import ALONE, BESIDE, WAIT_S, ProgramsSignal
from agents.host.machine import HostClock
from tests.builders import Time
from tests.errors import raised
from tests.processes import until
from tuner.core import ActuationError, Conflict

OWNER = """
import sys, time
from pathlib import Path
from agents.finetuning.job import FineTuningJob
from agents.finetuning.programs import ProgramsSignal
from agents.host.machine import HostClock
clock = HostClock()
with ProgramsSignal(Path(sys.argv[1])).beside(clock) as held:
    job = FineTuningJob(sys.argv[2:], clock, [held])
    job.let(run=True)
    print(job.pid, flush=True)
    time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({file!r}, "w").close()
while not __import__("os").path.exists({end!r}):
    time.sleep(0.01)
"""


@pytest.fixture
def programs(tmp_path: Path) -> ProgramsSignal:
    return ProgramsSignal(tmp_path / "finetuning.lock")


def now(programs: ProgramsSignal) -> float | None:
    return programs.read().present


def test_the_signal_is_1_alone_and_2_beside_a_job(programs: ProgramsSignal) -> None:
    assert now(programs) == ALONE, "no job has run yet"
    with programs.beside(Time()) as held:
        assert now(programs) == BESIDE
        job = FineTuningJob([sys.executable, "-c", ""], HostClock(), [held])
    job.let(run=True)
    job.close()
    assert now(programs) == ALONE


def test_a_second_job_is_refused(programs: ProgramsSignal) -> None:
    time = Time()
    with programs.beside(time):
        began = time.monotonic()
        with raised(Conflict, "another fine-tuning job", "finetuning.lock"), programs.beside(time):
            pass
        assert time.monotonic() - began >= WAIT_S
        assert now(programs) == BESIDE


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    folder = ProgramsSignal(tmp_path / "nowhere" / "lock")
    assert now(folder) == ALONE
    with raised(ActuationError, "nowhere"), folder.beside(Time()):
        pass
    file = tmp_path / "file"
    file.touch()
    with raised(ActuationError, "file"):
        ProgramsSignal(file / "lock").read()


def test_a_killed_command_counts_until_its_job_has_ended(
    programs: ProgramsSignal, tmp_path: Path
) -> None:
    running, end = tmp_path / "running", tmp_path / "end"
    job = [sys.executable, "-c", STUBBORN.format(file=str(running), end=str(end))]
    words = [sys.executable, "-c", OWNER, str(tmp_path / "finetuning.lock"), *job]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        until(running.exists)
        assert now(programs) == BESIDE
        owner.send_signal(signal.SIGKILL)
    assert now(programs) == BESIDE, "the job still runs"
    end.touch()
    until(lambda: now(programs) == ALONE)
