"""Child processes end with their parent, and the last lines of their output are reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders import START
from tests.errors import raised
from tests.processes import gone, until
from tuner.cli.run.processes import ChildProcess, Children, all_there, last_error, restore
from tuner.client import Client
from tuner.core import ActuationError, ConfigError, TuningError


def spawn(folder: Path, code: str) -> ChildProcess:
    log = folder / "child.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return ChildProcess("tuner", process, log)


def test_a_refused_input_comes_back_in_the_childs_own_words(tmp_path: Path) -> None:
    code = "import sys; print('starting'); print('error: no port; take another'); sys.exit(2)"
    child = spawn(tmp_path, code)
    child.process.wait()
    with raised(ConfigError, "port"):
        child.check()
    child.end()


def test_any_other_exit_code_is_an_error_that_names_the_log(tmp_path: Path) -> None:
    child = spawn(tmp_path, "raise SystemExit('it burns')")
    child.process.wait()
    with raised(TuningError, "code 1") as ended:
        child.check()
    assert str(tmp_path / "child.log") in ended.value.hint
    child.end()


def test_a_killed_child_is_reported(tmp_path: Path) -> None:
    child = spawn(tmp_path, "import time; print('INFO at work', flush=True); time.sleep(60)")
    child.check()
    while not child.log.read_text():
        time.sleep(0.05)
    child.process.kill()
    child.process.wait()
    with raised(TuningError, "signal 9") as ended:
        child.check()
    assert ended.value.message.endswith("signal 9"), "what it last did did not end it"
    assert "continue with --resume" in ended.value.hint
    child.end()


def test_a_restore_that_fails_beside_an_ended_child_names_its_end_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_folder: Path, *, tell: bool) -> None:
        raise ActuationError("the service does not answer", hint="start it")

    monkeypatch.setattr("tuner.cli.run.processes.revert", fail)
    child = spawn(tmp_path, "import time; time.sleep(60)")
    with raised(ActuationError, "the service does not answer; start it"):
        restore(tmp_path, child)
    child.end()
    with raised(ActuationError, "signal 15; the service does not answer"):
        restore(tmp_path, child)


def test_ending_a_child_ends_its_processes(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    child = spawn(tmp_path, code)
    while not child.log.read_text().strip():
        time.sleep(0.02)
    grandchild = int(child.log.read_text())
    child.end()
    assert child.process.returncode == -signal.SIGTERM
    until(lambda: gone(grandchild), "it outlives its parent")
    child.end()


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path;"
        "from tuner.cli.run.processes import Children;"
        "import os; folder = Path(sys.argv[1]);"
        "c = Children(folder).start('tuner', ['tuner', 'serve', '--port', '0', '--db', 'memory://',"
        "'--token-file', str(folder / 'token'), '--port-file', str(folder / 'port')], os.environ);"
        "print(c.process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    until((tmp_path / "port").exists, "the tuner does not serve")
    assert not gone(pid)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    until(lambda: gone(pid), "it outlives its parent")


def test_children_are_ended_the_last_first(tmp_path: Path) -> None:
    children = Children(tmp_path)
    started = [children.start(name, ["doctor"], os.environ) for name in ("one", "two")]
    for child in started:
        child.process.wait()
    assert started[0].process.returncode == 0
    assert "cores" in (tmp_path / "one.log").read_text()
    children.end()
    children.check()


def test_the_last_error_of_a_log_is_found(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("")
    assert last_error(log) == ""
    log.write_text("error: first; do\nnoise\n")
    assert last_error(log) == "first; do"
    log.write_bytes(b"Traceback\n  \xff\nValueError: no\n\n")
    assert last_error(log) == "ValueError: no"


def test_a_device_that_does_not_answer_is_reported_at_once_while_its_agent_waits(
    tmp_path: Path,
) -> None:
    log = tmp_path / "agent.log"
    log.write_text("ERROR event=not_opened device=cpu@h why='port 1 does not answer'\n")
    with raised(ActuationError, "cpu@h", "port 1"), stand_in() as d:
        all_there(["cpu@h"], d, START, log)


def stand_in() -> Client:
    """Return a tuner's API that fails at any call."""
    return Client("http://127.0.0.1:1", "")
