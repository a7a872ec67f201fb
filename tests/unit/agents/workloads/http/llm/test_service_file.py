"""Every engine: recognised, and measured by the file that is written for it."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.host.host import HostClock
from agents.target.side import IdleState, Side
from agents.workloads import open_workload
from agents.workloads.http.llm.detection import ServedModel, find_server
from agents.workloads.http.llm.engines import ENGINES
from agents.workloads.http.llm.requests import RequestedLoad
from agents.workloads.http.llm.service_file import LlmProcess, service_text
from tests.errors import raised
from tests.unit.agents.workloads.http.llm.servers import SHOWN, TOKENS, ModelServer, Shown
from tuner.core import (
    Condition,
    DeviceLost,
    InvalidInput,
    MeasurementError,
    Reading,
    Role,
)

WATCHED = ("vllm", "sglang", "tgi")
LOAD = RequestedLoad.parse("callers=2,prompt=4-8,output=8")
Start = Callable[..., ModelServer]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[ModelServer] = []

    def begin(shown: Shown, **more: object) -> ModelServer:
        running.append(ModelServer(shown, **more))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for server in running:
        server.close()


def opened(server: ServedModel, folder: Path, load: RequestedLoad | None = None) -> Side:
    bodies = folder / "bodies.jsonl"
    if load is not None:
        bodies.write_text(load.bodies(server.model, server.engine.request, 0))
    file = folder / "llm.toml"
    file.write_text(service_text(server, LlmProcess(), load, bodies, {"ttft_ms": 5000.0}))
    return open_workload(f"service:{file}", seed=0, state_dir=folder, clock=HostClock())


def window(side: Side, requests: int) -> Reading:
    """Return a window in which some requests were answered, whoever sent them."""
    measured = side.meter.start()
    while measured.read().totals.get("items", 0.0) < requests * TOKENS:
        time.sleep(0.01)
    reading = measured.stop()
    side.close()
    return reading


def traffic(url: str, stop: threading.Event) -> None:
    while not stop.is_set():
        body = b'{"model": "small", "prompt": "a", "stream": true}'
        with urllib.request.urlopen(f"{url}/v1/completions", body, timeout=10) as answer:
            answer.read()


def test_every_engine_is_recognised_by_what_it_says_of_itself(start: Start) -> None:
    assert {engine.name for engine in ENGINES} == SHOWN.keys()
    for name, shown in SHOWN.items():
        server = find_server(start(shown).url)
        assert server.engine.name == name
        assert server.model == ("" if name == "triton" else "small")
        assert (server.version != "unknown") is (name != "openai")


def test_the_addresses_v1_is_accepted_and_what_is_no_model_server_is_refused(start: Start) -> None:
    assert find_server(f"{start(SHOWN['vllm']).url}/v1").engine.name == "vllm"
    with raised(InvalidInput, "vLLM"):
        find_server(start(Shown({"/version": {"version": "7"}})).url)
    with raised(InvalidInput, "no model"):
        find_server(start(Shown({"/api/version": {"version": "0.12.3"}})).url)
    gone = start(SHOWN["vllm"])
    gone.close()
    with raised(DeviceLost, gone.url):
        find_server(gone.url)
    with raised(InvalidInput, "path"):
        find_server("http://127.0.0.1:1/api")


def test_the_knobs_of_our_proxy_in_front_of_a_server_are_set_by_one_call(
    start: Start, tmp_path: Path
) -> None:
    cost = {"seconds": 0.5, "restart": True}
    length = {"name": "speculation_length", "values": [0, 4], "default": 0, "cost": cost}
    draft = {"name": "draft", "values": ["d", "e"], "default": "d", "cost": cost}
    threads = {"name": "threads", "values": [1, 2], "default": 2, "cost": cost}
    knobs = [
        {**length, "role": "speculation_length"},
        {**draft, "role": "draft", "condition": "speculation_length > 0"},
        threads,
    ]
    setting = {"speculation_length": 0, "draft": "d", "threads": 2}
    reply = {"name": "llama_cpp", "version": "1", "knobs": knobs, "setting": setting}
    running = start(replace(SHOWN["llama.cpp"], knobs=reply))
    side = opened(find_server(running.url), tmp_path, LOAD)
    assert {knob.name: knob.default for knob in side.space.knobs} == setting
    assert side.space.knob("draft").condition == Condition("speculation_length", ">", "0")
    assert side.space.knob("speculation_length").role is Role.SPECULATION_LENGTH
    assert all(knob.cost.restart for knob in side.space.knobs)
    side.actuator.apply({"threads": 1, "speculation_length": 4})
    assert running.changes == [{"speculation_length": 4, "threads": 1}]
    assert side.actuator.read() == {**setting, **running.changes[0]}
    side.close()


@pytest.mark.parametrize(
    ("name", "asleep"),
    [("llama.cpp", {"/props": {"is_sleeping": True}}), ("ollama", {"/api/ps": {"models": []}})],
)
def test_a_model_that_has_left_memory_shows_in_the_state_of_its_process(
    name: str, asleep: dict[str, dict[str, Any]], start: Start, tmp_path: Path
) -> None:
    answers = {path: dict(answer) for path, answer in SHOWN[name].answers.items()}
    running = start(replace(SHOWN[name], answers=answers))
    side = opened(find_server(running.url), tmp_path, LOAD)
    assert side.idle is not None and side.idle.look() is IdleState.LOADED
    for path, changed in asleep.items():
        answers[path] |= changed
    assert side.idle.look() is IdleState.UNLOADED
    answers.pop(next(iter(asleep)))
    with raised(MeasurementError, next(iter(asleep))):
        side.idle.look()
    side.close()


def test_requests_under_way_are_no_idling(start: Start, tmp_path: Path) -> None:
    running = start(SHOWN["vllm"])
    side = opened(find_server(running.url), tmp_path, LOAD)
    assert side.idle is not None and side.idle.look() is IdleState.LOADED
    running.inside = 1
    assert side.idle.look() is IdleState.BUSY
    side.close()


def test_an_unload_delay_is_proven_by_the_share_of_a_window_without_the_model(
    start: Start, tmp_path: Path
) -> None:
    delay = {"name": "sleep_idle_seconds", "values": [-1, 5], "default": -1}
    reply = {"name": "llama_cpp", "version": "1", "knobs": [delay]}
    knobs = {**reply, "setting": {"sleep_idle_seconds": -1}}
    server = find_server(start(replace(SHOWN["llama.cpp"], knobs=knobs)).url)
    with raised(InvalidInput, "sleep_idle_seconds"):  # there are no pauses
        opened(server, tmp_path, LOAD)
    side = opened(server, tmp_path, RequestedLoad.parse("rate=50,prompt=4-8,output=8"))
    assert side.idle is not None and side.idle.delay_knob == "sleep_idle_seconds"
    assert "unloaded_share" in {metric.name for metric in side.metrics}
    assert window(side, 8).estimates["unloaded_share"].mean == 0.0


@pytest.mark.parametrize("name", WATCHED)
def test_its_own_traffic_is_measured_per_output_token(
    name: str, start: Start, tmp_path: Path
) -> None:
    running, stop = start(SHOWN[name]), threading.Event()
    sender = threading.Thread(target=traffic, args=(running.url, stop))
    side = opened(find_server(running.url), tmp_path)
    sender.start()
    try:
        reading = window(side, 4)
    finally:
        stop.set()
        sender.join()
    assert reading.totals["items"] % TOKENS == 0
    shown = reading.estimates.keys()
    assert {"latency_p50_ms", "latency_p99_ms"} <= shown
    assert ("ttft_p99_ms" in shown) is ("tpot_p99_ms" in shown) is (name != "tgi")


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - {"triton"}))
def test_a_generated_load_times_tokens_at_the_client(
    name: str, start: Start, tmp_path: Path
) -> None:
    running = start(SHOWN[name])
    reading = window(opened(find_server(running.url), tmp_path, LOAD), 60)
    metrics = {"ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "goodput_per_s"}
    assert metrics <= reading.estimates.keys()
    assert "throughput_per_s" not in reading.estimates
    assert reading.totals["items"] >= TOKENS * reading.estimates["ttft_p99_ms"].n - TOKENS * 4
    sent = running.bodies[0]
    assert sent["stream"] and sent["stream_options"] == {"include_usage": True}
    assert sent["max_tokens"] == 8 and 4 <= len(sent["prompt"].split()) <= 8
    assert ("ignore_eos" in sent) is (name in ("vllm", "sglang", "llama.cpp"))


@pytest.mark.parametrize("name", WATCHED)
def test_a_renamed_metric_is_refused_by_its_name(name: str, start: Start, tmp_path: Path) -> None:
    first = SHOWN[name].histograms[0]
    running = start(SHOWN[name], renamed={first: "another_name"})
    with raised(InvalidInput, first) as refused:
        opened(find_server(running.url), tmp_path)
    assert "another_name" in refused.value.hint


@pytest.mark.parametrize("name", ["llama.cpp", "ollama", "openai", "triton"])
def test_a_server_without_a_histogram_says_how_it_can_be_measured(
    name: str, start: Start, tmp_path: Path
) -> None:
    shown = replace(SHOWN[name], histograms=())
    with raised(InvalidInput) as refused:
        opened(find_server(start(shown).url), tmp_path)
    assert "--generate-load" in refused.value.hint


def test_an_older_name_of_a_metric_is_taken_where_the_newer_is_missing(
    start: Start, tmp_path: Path
) -> None:
    newer = "vllm:request_time_per_output_token_seconds"
    older = "vllm:time_per_output_token_seconds"
    running = start(SHOWN["vllm"], renamed={newer: older})
    opened(find_server(running.url), tmp_path).close()
    assert older in (tmp_path / "llm.toml").read_text()


def test_an_answer_without_its_number_of_tokens_is_a_failure(start: Start, tmp_path: Path) -> None:
    running = start(SHOWN["ollama"], broken=True)
    side = opened(find_server(running.url), tmp_path, LOAD)
    measured = side.meter.start()
    while not measured.read().totals["failed"]:
        time.sleep(0.01)
    reading = measured.stop()
    side.close()
    assert "ttft_p99_ms" not in reading.estimates
