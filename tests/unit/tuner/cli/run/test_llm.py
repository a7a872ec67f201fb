"""`jouletune run --llm`: its detection, its file and its refusals before a process starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.target.side import NothingToMeasure, NothingToSet, Side
from agents.workloads.http.config import load_service_config
from tests.errors import has_a_next_step, raised
from tests.unit.agents.workloads.http.llm.servers import SHOWN, ModelServer
from tuner.cli.app import main
from tuner.cli.run import llm
from tuner.cli.run.jobs import Wishes, requested_jobs, terms
from tuner.cli.runfile import RunJob
from tuner.core import Clock, Cost, Knob, Part, Space, TuningError

LOAD = "rate=2,prompt=4-8,output=8"


@pytest.fixture
def vllm() -> Iterator[ModelServer]:
    server = ModelServer(SHOWN["vllm"])
    yield server
    server.close()


class Hurried(Clock):
    """A clock whose waits end at once."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_check_lists_the_metrics_and_writes_nothing(
    vllm: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--llm", vllm.url, "--device", "simulated:orin", "--check"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    for word in ("vLLM 0.33.0", "ttft_p99_ms", "would set gpu.clock_mhz", "energy is measured"):
        assert word in printed
    assert "the server's own traffic" in printed and "FAILED" not in printed
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "unkind", "options", "said"),
    [
        ("llama.cpp", {"silent": True}, ["--generate-load", LOAD], "HTTP 501"),
        ("vllm", {"keyed": ("/v1",)}, [], "needs an API key"),
        ("vllm", {"models": ("adapter",)}, [], "models small, adapter; all are measured together"),
    ],
)
def test_a_check_of_a_server_that_lacks_parts_has_a_next_step_for_each(
    name: str,
    unkind: dict[str, Any],
    options: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = ModelServer(SHOWN[name], **unkind)
    try:
        assert main(["run", "--llm", server.url, "--device", "cpu", "--check", *options]) == 0
    finally:
        server.close()
    lines = capsys.readouterr().out.splitlines()
    assert said in "\n".join(lines)
    missing = [n for n, line in enumerate(lines) if line.startswith("missing")]
    assert all(lines[n + 1].strip().startswith("next: ") for n in missing)


@pytest.mark.parametrize(
    ("unkind", "said"),
    [
        ({"posted": 429}, "HTTP 429"),
        ({"posted": 401}, "HTTP 401"),
        ({"broken": True}, "number of tokens"),
        ({"models": ("b", "c")}, "small, b, c"),
        ({"status": 503}, "HTTP 503"),
    ],
)
def test_a_load_that_a_server_does_not_answer_is_refused_before_a_run(
    unkind: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ModelServer(SHOWN["openai"], **unkind)
    command = ["run", "--llm", server.url, "--device", "cpu", "--generate-load", LOAD]
    try:
        assert main([*command, "--state-dir", str(tmp_path / "state")]) != 0
    finally:
        server.close()
    printed = capsys.readouterr().err
    assert said in printed and has_a_next_step(printed)


def test_an_agent_reads_the_configuration_that_is_written(
    vllm: ModelServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ["--constraint", "ttft_p99_ms <= 500", "--constraint", "tpot_p99_ms <= 1.2x baseline"]
    command = ["run", "--llm", vllm.url, "--write-config", "llm.toml", "--generate-load", LOAD]
    assert main([*command, *limits]) == 0
    assert f"service:{tmp_path / 'llm.toml'}" in capsys.readouterr().out
    load = load_service_config(tmp_path / "llm.toml").load
    assert load is not None and load.stream
    assert load.shape.rate_per_s == 2.0 and len(load.sent) == 512
    assert load.good == {"ttft_ms": 500.0}


def test_restarting_knobs_are_set_only_on_request(
    vllm: ModelServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Knob("--threads", (1, 2), 2, Part.WORKLOAD, Cost(restart=True))
    of_a_unit = Side(
        name="llm.service",
        kind="unit",
        board="",
        version="",
        space=Space((threads,)),
        metrics=(),
        actuator=NothingToSet(),
        meter=NothingToMeasure(),
    )
    monkeypatch.setattr(llm, "open_device", lambda spec, **_: of_a_unit)
    request = llm.LlmRequest(vllm.url, "cpu")
    for allowed in (False, True):
        checks = list(llm.examine(replace(request, allow_restart=allowed)))
        (may, hint) = next((c.there, c.hint) for c in checks if c.about == "would set --threads")
        assert (may, "--allow-restart" in hint) == (allowed, not allowed)
    (job,) = requested_jobs(Wishes(device="cpu", workload="reference", allow_restart=False))
    assert not terms(job).allow_restart and terms(RunJob(device="cpu")).allow_restart


def test_a_server_without_traffic_is_not_tuned(vllm: ModelServer, tmp_path: Path) -> None:
    file = llm.write_files(llm.LlmRequest(vllm.url, "cpu"), tmp_path)
    with raised(TuningError, "no request") as refused:
        llm.demand_traffic(file.workload, Hurried())
    assert "--generate-load" in refused.value.hint


@pytest.mark.parametrize(
    "options",
    [
        ["--check"],
        ["--write-config", "llm.toml"],
        ["--generate-load", LOAD],
        ["--allow-restart"],
        ["--device", "cpu", "--workload", "reference", "--allow-restart"],
        ["--device", "cpu+unit:llm.service", "--workload", "service:/nowhere.toml"],
        ["--llm", "http://127.0.0.1:1", "--device", "unit:llm.service"],
        ["--llm", "http://127.0.0.1:1", "--resume"],
        ["--llm", "http://127.0.0.1:1", "--command", "true"],
        ["--llm", "http://127.0.0.1:1", "--device", "cpu"],
        ["--llm", "http://192.0.2.1:8000", "--device", "cpu"],
        ["--llm", "http://127.0.0.1:1", "--generate-load", "fast"],
    ],
)
def test_options_that_do_not_go_together_change_nothing(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options]) != 0
    assert has_a_next_step(capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
