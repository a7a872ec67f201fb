"""The proxy in front of an engine that reserves the device's memory, as vLLM does."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from agents.host.machine import HostClock
from agents.workloads import open_workload
from agents.workloads.engine.active import ActivePassive
from agents.workloads.engine.child import EngineProcess
from agents.workloads.engine.launch import Launcher, ServerFlag
from agents.workloads.engine.server import EngineServer
from tests.errors import raised
from tests.llama.running import RunningProxy, running
from tests.processes import kill, reserved_port, until
from tests.unit.agents.workloads.engine.vllm_stand_in import TOO_MANY
from tuner.core import InvalidInput, Role, Setting, Value

STAND_IN = (sys.executable, "-m", "tests.unit.agents.workloads.engine.vllm_stand_in", "serve")
KNOBS: tuple[str, ...] = (
    "--knob",
    f"max_num_seqs=8,16,{TOO_MANY}",
    "--knob",
    "enable_prefix_caching=on,off",
)
KNOBS += ("--knob", "speculative_tokens=0,4")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


@pytest.fixture
def vllm(model: Path, tmp_path: Path) -> Iterator[RunningProxy]:
    with running([*KNOBS, "--", *STAND_IN, str(model)], tmp_path) as proxy:
        yield proxy


def starts(model: Path) -> list[list[str]]:
    """Return the words of each start."""
    return [json.loads(line) for line in (model / "starts").read_text().splitlines()]


def memory_is_free(model: Path) -> bool:
    """Return whether no process of an engine is left."""
    with (model / "memory").open() as memory:
        try:
            fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def lost(proxy: RunningProxy) -> str:
    """Return the answer to a streamed request if it did not arrive whole."""
    body = {"prompt": "x", "max_tokens": 8, "stream": True}
    with proxy.client.stream("POST", "/v1/completions", json=body) as answer:
        text = answer.read().decode()
        return "" if "data: [DONE]" in text else f"HTTP {answer.status_code}: {text}"


@pytest.mark.promise("a llama-server dies, or a new draft length needs a restart")
def test_no_request_is_lost_where_each_change_ends_the_engine_first(
    vllm: RunningProxy, model: Path
) -> None:
    stop, answers = threading.Event(), list[str]()

    def load() -> None:
        while not stop.is_set():
            answers.append(lost(vllm))

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(load) for _ in range(4)]
        try:
            settings: list[dict[str, Value]] = [
                {"max_num_seqs": 16, "enable_prefix_caching": "off"},
                {"speculative_tokens": 4},
                {"speculative_tokens": 0, "max_num_seqs": 8},
            ]
            for n, setting in enumerate(settings, 2):
                assert setting.items() <= vllm.put("/knobs", setting).json()["setting"].items()
                assert len(starts(model)) == n
        finally:
            stop.set()
        for caller in callers:
            caller.result()
    assert len(answers) > 8 and {*answers} == {""}
    first, second, third, _ = (" ".join(words) for words in starts(model))
    assert "--max-num-seqs 8 --enable-prefix-caching" in first and "speculative" not in first
    assert "--max-num-seqs 16 --no-enable-prefix-caching" in second
    assert '"num_speculative_tokens": 4' in third
    assert vllm.stats()["failed"] == 0


def test_after_a_setting_that_does_not_start_the_former_one_serves(
    vllm: RunningProxy, model: Path
) -> None:
    assert vllm.put("/knobs", {"max_num_seqs": TOO_MANY}).status_code == 503
    assert not lost(vllm)
    assert vllm.get("/knobs")["setting"]["max_num_seqs"] == 8
    assert "8" in starts(model)[-1] and len(starts(model)) == 2


def test_after_a_start_that_fails_in_an_unknown_way_the_former_server_is_started() -> None:
    starts = list[int]()

    async def start(setting: Setting) -> EngineServer:
        starts.append(int(setting["n"]))
        if setting["n"] == 2:
            raise KeyError("unknown")
        return EngineServer("http://127.0.0.1:9", setting)

    async def change() -> Setting:
        servers = ActivePassive(start, beside=False)
        await servers.change({"n": 1})
        with pytest.raises(KeyError):
            await servers.change({"n": 2})
        try:
            return (await servers.acquire(10.0)).setting
        finally:
            await servers.close()

    assert asyncio.run(change()) == {"n": 1}
    assert starts == [1, 2, 1]


def test_a_request_waits_for_a_restart_but_not_for_another_server_than_a_running_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agents.workloads.engine.active.WAIT_S", 0.1)
    server = EngineServer("http://127.0.0.1:9", {})

    async def start(_setting: Setting) -> EngineServer:
        return server

    async def acquired() -> None:
        servers = ActivePassive(start, beside=False)
        waiting = asyncio.create_task(servers.acquire())
        await asyncio.sleep(0.3)
        await servers.change({})
        assert await waiting is server
        assert await asyncio.wait_for(servers.acquire(other_than=server), 30.0) is server
        await servers.close()

    asyncio.run(acquired())


def test_what_a_killed_engine_leaves_is_ended_before_the_next_start(
    vllm: RunningProxy, model: Path
) -> None:
    kill(vllm.stats()["pids"][0])
    assert not lost(vllm)
    assert len(starts(model)) == 2


def test_what_a_killed_proxy_leaves_is_ended_by_the_next_one(model: Path, tmp_path: Path) -> None:
    words = ["--port", str(reserved_port()), *KNOBS, "--", *STAND_IN, str(model)]
    with running(words, tmp_path) as proxy:
        proxy.process.kill()
    assert not memory_is_free(model)
    with running(words, tmp_path) as proxy:
        assert not lost(proxy)
    until(lambda: memory_is_free(model), "the engine outlived its proxy")


def test_drafts_of_an_openai_engine_are_measured_under_our_load_alone(
    vllm: RunningProxy, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps([f"def f{i}():" for i in range(64)]))
    own: dict[str, Any] = {"seed": 0, "state_dir": tmp_path, "clock": HostClock()}
    with raised(InvalidInput, "reports no tokens", "jouletune run --llm"):
        open_workload(f"llama_cpp:{vllm.url}", **own)
    side = open_workload(f"llama_cpp:{vllm.url}#callers:2,prompts:{file},tokens:8", **own)
    try:
        roles = {knob.name: knob.role for knob in side.space.knobs}
        assert roles["speculative_tokens"] is Role.SPECULATION_LENGTH
        assert "accepted_at_4" in {metric.name for metric in side.metrics}
        window = side.meter.start()
        until(lambda: window.read().totals["items"] >= 8.0, "no tokens")
        assert window.stop().totals["failed"] == 0.0
    finally:
        side.close()


def test_the_cpu_time_of_an_engine_has_its_workers() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as first:
        server = EngineServer("http://127.0.0.1:9", {}, cast("EngineProcess", first))
        try:
            until(lambda: server.cpu_s() > 1.0, "its worker is not counted")
        finally:
            os.killpg(first.pid, signal.SIGKILL)


def launcher(model: Path, flags: Mapping[str, Sequence[Value]], *more: str) -> Launcher:
    """Return the launcher of the stand-in with flags as knobs."""
    knobs = [ServerFlag(name, tuple(values), values[0]) for name, values in flags.items()]
    return asyncio.run(Launcher.of([*STAND_IN, str(model), *more], {}, model, knobs))


@pytest.mark.parametrize(
    ("flags", "more", "words"),
    [
        ({}, (), "there are max_num_seqs, enable_prefix_caching, kv_cache_dtype"),
        ({"max_seqs": (1, 2)}, (), "does not list --max-seqs"),
        ({"kv_cache_dtype": ("auto", "int4")}, (), "use auto, fp8"),
        ({"enable_prefix_caching": (1, 2)}, (), "use on, off"),
        ({"host": ("a", "b")}, (), "--host"),
        ({"max_num_seqs": (8, 16)}, ("--max_num_seqs=4",), "in the command as --max_num_seqs=4"),
        ({"max_num_seqs": (8, 16)}, ("--port=80",), "--port=80 is set by the proxy"),
        ({"tensor_parallel_size": (1, 2)}, ("-tp", "2"), "in the command as -tp"),
        ({"speculative_tokens": ("on", "off")}, (), "cannot be on; use whole numbers"),
        ({"speculative_tokens": ("0", "off")}, (), "cannot be off; use whole numbers"),
        ({"speculative_tokens": (0, 2)}, ("-sc",), "-sc has no JSON object"),
        ({"speculative_tokens": (0, 2)}, ("-sc", "[1]"), "-sc has no JSON object"),
        ({"speculative_tokens": (0, 2)}, ("-sc.method", "eagle"), "-sc.method is in the command"),
        ({"speculative_tokens": (0, 2)}, ("--spec-type", "none"), "--spec-type is in the command"),
    ],
)
def test_a_knob_that_this_version_or_command_excludes_is_refused_by_name(
    model: Path, flags: Mapping[str, Sequence[Value]], more: Sequence[str], words: str
) -> None:
    with raised(InvalidInput, words):
        launcher(model, flags, *more)


@pytest.mark.parametrize("words", ["--speculative-config {}", "--speculative_config={}", "-sc {}"])
def test_the_speculative_configuration_of_the_command_is_kept(model: Path, words: str) -> None:
    own = [word.format('{"method": "eagle", "model": "m"}') for word in words.split()]
    started = launcher(model, {"speculative_tokens": (2, 0)}, *own)
    assert started.command == (*STAND_IN, str(model))
    *command, option, drafting = started.command_at({"speculative_tokens": 2})
    assert tuple(command) == started.command
    assert option == "--speculative-config"
    assert json.loads(drafting) == {"method": "eagle", "model": "m", "num_speculative_tokens": 2}
    assert started.command_at({"speculative_tokens": 0}) == command


def test_a_flag_is_spelled_as_the_build_lists_it(model: Path) -> None:
    started = launcher(model, {"max_batch_size": (8, 16)})
    assert started.command_at({"max_batch_size": 16})[-2:] == ["--max_batch_size", "16"]
    assert not started.engine.beside


def test_a_program_without_a_help_is_refused_with_its_error(model: Path) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('ImportError: libcudart.so.12')"]
    with raised(InvalidInput, "fails: ImportError: libcudart.so.12"):
        asyncio.run(Launcher.of(broken, {}, model, [ServerFlag("n", (1, 2), 1)]))
