"""`jouletune run --llm -- COMMAND`: its words, and that nothing of the engine survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.errors import raised
from tests.processes import gone, until
from tests.unit.agents.workloads.engine.test_engine import STAND_IN, memory_is_free, starts
from tuner.cli.reach import OWN, with_own_engine
from tuner.cli.run.engine import demand_engine, proxy_words, served
from tuner.core import ConfigError, TuningError


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


@pytest.mark.parametrize("killed", ["proxy", "nothing"])
def test_no_process_of_the_engine_survives_the_run(tmp_path: Path, killed: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    words = proxy_words([*STAND_IN, str(model)], ["max_num_seqs=8,16"])
    with served(words, tmp_path) as engine:
        assert httpx2.get(f"{engine.url}/version", trust_env=False).json() == {"version": "0.33.0"}
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
    assert run.returncode == 1 and memory_is_free(model)
