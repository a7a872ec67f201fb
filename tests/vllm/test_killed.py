"""A run that started a real vLLM, with one of its processes killed: in each case nothing is left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.workloads.engine.child import writers
from tests.processes import children, command_line, gone, kill, until
from tests.vllm.build import missing
from tests.vllm.serving import ENVIRON, START_S, serving

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
OPTIONS = ["--device", "cpu", "--generate-load", "callers=2,prompt=16,output=8"]
KNOBS = ["--knob", "max_num_seqs=8,2", "--trials", "4", "--foreign-share", "1"]
END_S = 120.0


class RunningRun:
    """A run over a vLLM in a state folder, and its processes by name."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder = process, folder

    def named(self) -> dict[str, int]:
        """Return the run's children by their first word: workload is the proxy."""
        lines = {pid: command_line(pid) for pid in children(self.process.pid)}
        return {words[3]: pid for pid, words in lines.items() if len(words) > 3}

    def engines(self) -> list[int]:
        """Return the processes of vLLM, its workers among them."""
        logs = self.folder.glob("engine/engine-*/engine.log")
        return [pid for log in logs for pid in writers(str(log.resolve()))]

    def ended(self, *parts: int) -> str:
        """Wait for the run's end, and return what it wrote as errors; no process of it is left."""
        _, errors = self.process.communicate(timeout=END_S)
        until(lambda: gone(*parts) and not self.engines(), "the end of all parts", END_S)
        return errors


@contextmanager
def started(folder: Path) -> Iterator[RunningRun]:
    """Start a run, and wait until its engine serves and its agent measures."""
    program = "import sys; from tuner.cli.app import main; sys.exit(main())"
    words = ["run", *OPTIONS, *KNOBS, "--state-dir", str(folder), "--llm", "--", *serving()]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    run = RunningRun(process, folder)
    try:
        until(lambda: gone(process.pid) or "agent" in run.named(), "the agent", 2 * START_S)
        yield run
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_kill_of_any_part_leaves_nothing_and_the_next_run_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    for name in ("tuner", "agent", "workload", "run"):
        with started(tmp_path) as run:
            parts = run.named()
            assert {"tuner", "agent", "workload"} <= parts.keys(), (name, run.ended())
            kill(parts.get(name, run.process.pid))
            errors = run.ended(*parts.values())
            assert run.process.returncode == (-9 if name == "run" else 1), errors
            shown = {"workload": "the proxy was killed", "run": ""}
            assert shown.get(name, f"the {name} was killed by signal 9") in errors


def test_a_killed_engine_is_started_again_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    with started(tmp_path) as run:
        before = run.engines()
        kill(*before)
        until(lambda: {*run.engines()} - {*before}, "another engine", START_S)
        assert run.process.poll() is None
        kill(run.process.pid)
        run.ended()
