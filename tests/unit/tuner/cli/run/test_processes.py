"""Child processes end with their parent, and the last lines of their output are reported."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.builders import START
from tests.errors import raised
from tests.processes import gone, reserved_port, until
from tests.unit.agents.workloads.engine.test_engine import STAND_IN, memory_is_free, starts
from tuner.cli.app import main
from tuner.cli.reach import OWN, with_own_engine
from tuner.cli.run.processes import (
    ChildProcess,
    Children,
    all_there,
    demand_engine,
    last_error,
    proxy_words,
    restore,
    served,
)
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


@pytest.mark.parametrize(
    ("given", "llm"),
    [
        (["run", "--llm", "--", "vllm"], f"--llm={OWN}"),
        (["run", "--llm", "--seed", "1", "--", "vllm"], f"--llm={OWN}"),
        (["run", "--llm", "http://127.0.0.1:8000"], "--llm"),
        (["run", "--llm"], "--llm"),
    ],
)
def test_llm_without_an_address_is_the_command_after_the_dashes(given: list[str], llm: str) -> None:
    assert with_own_engine(given) == [given[0], llm, *given[2:]]


def test_the_engine_is_reached_at_its_own_port() -> None:
    for words in (["--port", "8000"], ["--port=8000"]):
        got = proxy_words(["vllm", "serve", *words, "m"], ["a=1,2"])
        assert got == ("--port", "8000", "--knob", "a=1,2", "--", "vllm", "serve", "m")
    assert proxy_words(["vllm"], [])[:2] == ("--port", "0")


def test_an_address_and_a_command_exclude_each_other() -> None:
    for llm, engine in ((OWN, []), ("http://127.0.0.1:80", ["vllm"]), ("", ["vllm"])):
        with raised(ConfigError, "--llm without an address"):
            demand_engine(llm, engine, resume=False, write_config=False)
    with raised(ConfigError, "--resume"):
        demand_engine(OWN, ["vllm"], resume=True, write_config=False)


@pytest.mark.parametrize(
    "wrong",
    [["--generate-load", "callers=0"], ["--constraint", "ttft_p95_ms <="], ["--device", "none:1"]],
)
def test_a_wrong_option_is_refused_before_the_engine_loads(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, state = tmp_path / "model", tmp_path / "state"
    model.mkdir()
    command = ["run", f"--llm={OWN}", "--knob", "max_num_seqs=8,16", "--state-dir", str(state)]
    assert main([*command, *wrong, "--", *STAND_IN, str(model)]) == 2
    assert wrong[1].partition("=")[0] in capsys.readouterr().err
    assert not state.exists() and not (model / "starts").exists()


@pytest.mark.parametrize("killed", ["proxy", "nothing"])
def test_no_process_of_the_engine_survives_the_run(tmp_path: Path, killed: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    own_port = ["--port", str(reserved_port())] if killed == "nothing" else []
    words = proxy_words([*STAND_IN, str(model), *own_port], ["max_num_seqs=8,16"])
    with served(words, tmp_path) as engine:
        assert httpx2.get(f"{engine.url}/version", trust_env=False).json() == {"version": "0.33.0"}
        held = {"max_num_seqs": 16, "cpu.max_mhz": 2000}
        whole = [*STAND_IN, str(model), "--max-num-seqs", "16", *own_port]
        assert engine.finished_command(held) == shlex.join(whole)
        if killed == "proxy":
            os.kill(engine.proxy.process.pid, signal.SIGKILL)
            until(lambda: engine.proxy.process.poll() is not None, "the proxy lives")
            with pytest.raises(TuningError, match="the proxy was killed by signal 9"):
                engine.proxy.check()
    assert memory_is_free(model)
    with served(engine.words, tmp_path) as again:
        assert again.url == engine.url
    assert len(starts(model)) == 2 and memory_is_free(model)


HANGING = """
import signal, subprocess
from tuner.cli import tied
tied.GRACE_S = 0.1
signal.signal(signal.SIGTERM, signal.SIG_IGN)
engine = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], start_new_session=True)
tied.end_with_parent()
"""


def test_a_proxy_that_hangs_ends_with_the_run_and_with_its_engine() -> None:
    proxy = subprocess.Popen(
        [sys.executable, "-c", HANGING], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert proxy.stdout is not None
    worker = int(proxy.stdout.readline())
    proxy.communicate(timeout=60.0)  # closes its stdin, as the end of the run does
    assert proxy.returncode == -signal.SIGKILL
    until(lambda: gone(worker), "the engine outlived its proxy")


def test_a_run_that_is_ended_while_its_engine_loads_leaves_no_process(tmp_path: Path) -> None:
    model, state = tmp_path / "model", tmp_path / "state"
    model.mkdir()
    words = ["run", "--llm", "--device", "cpu", "--state-dir", str(state), "--knob"]
    words += ["max_num_seqs=8,16", "--", *STAND_IN, str(model), "--load-s", "60"]
    main = "import sys; from tuner.cli.app import main; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", main, *words], stderr=subprocess.PIPE) as run:
        until((model / "starts").exists, "the engine does not start")
        for number in (signal.SIGTERM, signal.SIGINT):  # the second changes nothing
            run.send_signal(number)
        assert "error: interrupted" in run.communicate()[1].decode()
    assert run.returncode == 130 and memory_is_free(model)
