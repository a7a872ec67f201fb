"""Every engine: recognised, and measured by the file that is written for it."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.host.machine import HostClock
from agents.target.side import IdleState, Side
from agents.workloads import open_workload
from agents.workloads.http.llm.detection import ServedModel, demand_answer, find_server
from agents.workloads.http.llm.engines import ENGINES, TRITON
from agents.workloads.http.llm.requests import RequestedLoad
from agents.workloads.http.llm.service_file import LlmProcess, service_text
from tests.errors import raised
from tests.unit.agents.workloads.http.llm.metric_texts import LATENCY_S, TOKENS, TTFT_S, exposition
from tests.unit.agents.workloads.http.llm.servers import SHOWN, Engine, ModelServer
from tuner.core import (
    ActuationError,
    Condition,
    DeviceLost,
    InvalidInput,
    MeasurementError,
    Reading,
    Role,
    TuningError,
)

WATCHED = ("vllm", "sglang", "trtllm", "tgi")
LOAD = RequestedLoad.parse("callers=2,prompt=4-8,output=8")


class Servers:
    """Model servers, and the sides that the files written for them make; all closed in the end."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "llm.toml"
        self.running: list[ModelServer] = []
        self.sides: list[Side] = []

    def start(self, shown: Engine, **more: Any) -> ModelServer:  # noqa: ANN401
        self.running.append(ModelServer(shown, **more))
        return self.running[-1]

    def open(self, server: ServedModel, load: RequestedLoad | None = None) -> Side:
        bodies = self.file.with_name("bodies.jsonl")
        if load is not None:
            server = server.serving(load.model)
            bodies.write_text(load.bodies(server.model, server.engine.request, 0))
        self.file.write_text(service_text(server, LlmProcess(), load, bodies, {"ttft_ms": 5000.0}))
        spec, folder = f"service:{self.file}", self.file.parent
        self.sides.append(open_workload(spec, seed=0, state_dir=folder, clock=HostClock()))
        return self.sides[-1]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    for side in made.sides:
        side.close()
    for server in made.running:
        server.close()


def window(side: Side, requests: int) -> Reading:
    """Return a window in which some requests were answered."""
    measured = side.meter.start()
    while measured.read().totals.get("items", 0.0) < requests * TOKENS:
        time.sleep(0.01)
    reading = measured.stop()
    return reading


def traffic(url: str, stop: threading.Event) -> None:
    while not stop.is_set():
        body = b'{"model": "small", "prompt": "a", "stream": true}'
        with urllib.request.urlopen(f"{url}/v1/completions", body, timeout=10) as answer:
            answer.read()


def test_every_engine_is_recognised_by_its_own_answers(servers: Servers) -> None:
    assert {engine.name for engine in ENGINES} == SHOWN.keys()
    for name, shown in SHOWN.items():
        server = find_server(servers.start(shown).url)
        assert server.engine.name == name
        assert server.model == ("" if name == "triton" else "small")
        assert (server.version != "unknown") is (name != "openai")


def test_the_addresses_v1_is_accepted_and_other_servers_are_refused(servers: Servers) -> None:
    assert find_server(f"{servers.start(SHOWN['vllm']).url}/v1").engine.name == "vllm"
    with raised(InvalidInput, "vLLM"):
        find_server(servers.start(Engine({"/version": {"version": "7"}})).url)
    with raised(InvalidInput, "no model"):
        find_server(servers.start(Engine({"/api/version": {"version": "0.12.3"}})).url)
    gone = servers.start(SHOWN["vllm"])
    gone.close()
    with raised(DeviceLost, gone.url):
        find_server(gone.url)
    with raised(InvalidInput, "path"):
        find_server("http://127.0.0.1:1/api")


def test_the_knobs_of_our_proxy_in_front_of_a_server_are_set_by_one_call(servers: Servers) -> None:
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
    running = servers.start(replace(SHOWN["llama.cpp"], knobs=reply))
    side = servers.open(find_server(running.url), LOAD)
    assert {knob.name: knob.default for knob in side.space.knobs} == setting
    assert side.space.knob("draft").condition == Condition("speculation_length", ">", "0")
    assert side.space.knob("speculation_length").role is Role.SPECULATION_LENGTH
    assert all(knob.cost.restart for knob in side.space.knobs)
    side.actuator.apply({"threads": 1, "speculation_length": 4})
    assert running.changes == [{"speculation_length": 4, "threads": 1}]
    assert side.actuator.read() == {**setting, **running.changes[0]}


@pytest.mark.parametrize(
    ("name", "asleep"),
    [("llama.cpp", {"/props": {"is_sleeping": True}}), ("ollama", {"/api/ps": {"models": []}})],
)
def test_a_model_that_has_left_memory_shows_in_the_state_of_its_process(
    name: str, asleep: dict[str, dict[str, Any]], servers: Servers
) -> None:
    answers = {path: dict(answer) for path, answer in SHOWN[name].answers.items()}
    running = servers.start(replace(SHOWN[name], answers=answers))
    side = servers.open(find_server(running.url), LOAD)
    assert side.idle is not None and side.idle.look() is IdleState.LOADED
    for path, changed in asleep.items():
        answers[path] |= changed
    assert side.idle.look() is IdleState.UNLOADED
    answers.pop(next(iter(asleep)))
    with raised(MeasurementError, next(iter(asleep))):
        side.idle.look()


def test_requests_in_progress_are_not_idle_time(servers: Servers) -> None:
    running = servers.start(SHOWN["vllm"])
    side = servers.open(find_server(running.url), LOAD)
    assert side.idle is not None and side.idle.look() is IdleState.LOADED
    running.inside = 1
    assert side.idle.look() is IdleState.BUSY


def test_an_unload_delay_is_proven_by_the_share_of_a_window_without_the_model(
    servers: Servers,
) -> None:
    delay = {"name": "sleep_idle_seconds", "values": [-1, 5], "default": -1}
    reply = {"name": "llama_cpp", "version": "1", "knobs": [delay]}
    knobs = {**reply, "setting": {"sleep_idle_seconds": -1}}
    server = find_server(servers.start(replace(SHOWN["llama.cpp"], knobs=knobs)).url)
    with raised(InvalidInput, "sleep_idle_seconds"):  # there are no pauses
        servers.open(server, LOAD)
    side = servers.open(server, RequestedLoad.parse("rate=50,prompt=4-8,output=8"))
    assert side.idle is not None and side.idle.delay_knob == "sleep_idle_seconds"
    assert "unloaded_share" in {metric.name for metric in side.metrics}
    assert window(side, 8).estimates["unloaded_share"].mean == 0.0


@pytest.mark.parametrize("name", WATCHED)
def test_the_servers_own_traffic_is_measured_per_output_token(name: str, servers: Servers) -> None:
    running, stop = servers.start(SHOWN[name], answered=3), threading.Event()
    sender = threading.Thread(target=traffic, args=(running.url, stop))
    side = servers.open(find_server(running.url))
    sender.start()
    try:
        reading = window(side, 4)
    finally:
        stop.set()
        sender.join()
    assert reading.totals["items"] % TOKENS == 0
    shown = reading.estimates
    for metric, value_s in (("latency_p50_ms", LATENCY_S), ("ttft_p50_ms", TTFT_S)):
        if metric in shown:  # within the bounds of its bucket, in ms
            assert shown[metric].low <= 1000.0 * value_s <= shown[metric].high
    assert "latency_p99_ms" in shown
    assert ("ttft_p99_ms" in shown) is ("tpot_p99_ms" in shown) is (name != "tgi")


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - {"triton"}))
def test_a_generated_load_times_tokens_at_the_client(name: str, servers: Servers) -> None:
    running = servers.start(SHOWN[name])
    demand_answer(find_server(running.url), LOAD.bodies("small", {}, 0).split("\n")[0])
    assert running.bodies.pop()["max_tokens"] == 1
    reading = window(servers.open(find_server(running.url), LOAD), 60)
    metrics = {"ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "goodput_per_s"}
    assert metrics <= reading.estimates.keys()
    assert "throughput_per_s" not in reading.estimates
    assert reading.totals["items"] >= TOKENS * reading.estimates["ttft_p99_ms"].n - TOKENS * 4
    sent = running.bodies[0]
    assert sent["stream"] and sent["stream_options"] == {"include_usage": True}
    assert sent["max_tokens"] == 8 and 4 <= len(sent["prompt"].split()) <= 8
    assert ("ignore_eos" in sent) is (name in ("vllm", "sglang", "trtllm", "llama.cpp"))


def test_the_first_responses_of_triton_are_measured_in_its_unit() -> None:
    metrics, style = SHOWN["triton"].metrics, SHOWN["triton"].style
    server = ServedModel(TRITON, "http://127.0.0.1:8000", "2.60", (), exposition(metrics, style, 0))
    text = service_text(server, LlmProcess())
    assert f'histogram = "{metrics[0].name}"' in text and 'unit = "ms"' in text


RENAMED = [
    (engine.name, name)
    for engine in ENGINES
    for name in (*(group[0] for group in engine.histograms.values()), engine.tokens, engine.running)
    if name and engine is not TRITON
]


@pytest.mark.parametrize(("engine", "name"), RENAMED)
def test_a_renamed_metric_is_refused_by_its_name(engine: str, name: str, servers: Servers) -> None:
    running = servers.start(SHOWN[engine], renamed={name: "another_name"}, answered=1)
    with raised(InvalidInput, name) as refused:
        servers.open(find_server(running.url), None if engine in WATCHED else LOAD)
    assert "available: " in refused.value.hint and "service:/PATH/FILE.toml" in refused.value.hint


@pytest.mark.parametrize("name", ["llama.cpp", "ollama", "openai", "triton"])
def test_a_server_without_a_histogram_gets_advice_on_measuring(name: str, servers: Servers) -> None:
    with raised(InvalidInput) as refused:
        servers.open(find_server(servers.start(SHOWN[name]).url))
    wanted = "--metrics-config" if name == "triton" else "--generate-load"
    assert wanted in refused.value.hint


@pytest.mark.parametrize("name", ["sglang", "trtllm", "tgi"])
def test_a_server_that_exposes_metrics_after_its_first_request_gets_one(
    name: str, servers: Servers
) -> None:
    running = servers.start(SHOWN[name])
    with raised(InvalidInput, "before its first request") as refused:
        servers.open(find_server(running.url))
    assert "send it a request" in refused.value.hint
    servers.open(find_server(running.url), LOAD)
    assert "[items]" not in servers.file.read_text()
    running.answered = 1
    servers.open(find_server(running.url), LOAD)
    assert "[items]" in servers.file.read_text()


def test_an_older_name_of_a_metric_is_taken_where_the_newer_is_missing(servers: Servers) -> None:
    newer = "vllm:request_time_per_output_token_seconds"
    older = "vllm:time_per_output_token_seconds"
    running = servers.start(SHOWN["vllm"], renamed={newer: older})
    servers.open(find_server(running.url))
    assert older in servers.file.read_text()


@pytest.mark.parametrize(
    ("name", "unkind", "error", "said", "then"),
    [
        ("sglang", {"silent": True}, InvalidInput, "HTTP 404", "--enable-metrics"),
        ("vllm", {"silent": True}, InvalidInput, "HTTP 404", "--generate-load"),
        ("tgi", {"silent": True}, InvalidInput, "HTTP 404", "own port if a proxy is in front"),
        ("llama.cpp", {"keyed": ("/",)}, InvalidInput, "needs an API key", "headers"),
        ("openai", {"keyed": ("/v1",)}, InvalidInput, "needs an API key", "headers"),
        ("llama.cpp", {"status": 503}, DeviceLost, "503: Loading ?", "once its model is loaded"),
        ("vllm", {"status": 502}, DeviceLost, "HTTP 502", "once its model is loaded"),
    ],
)
def test_a_server_that_shows_nothing_is_refused_with_the_next_step(
    name: str,
    unkind: dict[str, Any],
    error: type[TuningError],
    said: str,
    then: str,
    servers: Servers,
) -> None:
    with raised(error, said) as refused:
        servers.open(find_server(servers.start(SHOWN[name], **unkind).url))
    assert then in refused.value.hint


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_server_behind_a_key_is_known_by_its_metrics_and_only_watched(
    name: str, servers: Servers
) -> None:
    """vLLM guards /v1 alone, SGLang all but /health and /metrics."""
    keyed = ("/v1",) if name == "vllm" else ("/v1", "/server_info", "/get_server_info")
    running = servers.start(SHOWN[name], keyed=keyed, answered=1)
    server = find_server(running.url)
    assert (server.engine.name, server.models) == (name, ())
    servers.open(server)
    with raised(InvalidInput, "needs an API key", "/v1/models"):
        servers.open(server, LOAD)


def test_a_proxy_that_passes_only_the_api_and_the_metrics_hides_no_engine(servers: Servers) -> None:
    shown = SHOWN["vllm"]
    passed = replace(shown, answers={"/v1/models": shown.answers["/v1/models"]})
    assert find_server(servers.start(passed).url).engine.name == "vllm"
    assert find_server(servers.start(passed, silent=True).url).engine.name == "openai"


def test_a_load_names_one_model_and_all_models_are_watched(servers: Servers) -> None:
    running = servers.start(SHOWN["vllm"], models=("adapter",), answered=2)
    server = find_server(running.url)
    servers.open(server)
    with raised(InvalidInput, "small, adapter") as refused:
        servers.open(server, LOAD)
    assert "model=small" in refused.value.hint
    with raised(InvalidInput, "not 'large'"):
        server.serving("large")
    side = servers.open(server, RequestedLoad.parse("callers=1,output=8,model=adapter"))
    window(side, 2)
    assert {body["model"] for body in running.bodies} == {"adapter"}


@pytest.mark.promise("a tuned service restarts, loses its metrics or resets its counters")
@pytest.mark.parametrize(("name", "after"), [("vllm", 0), ("vllm", 9), ("sglang", 0), ("tgi", 0)])
def test_a_restart_within_a_window_gives_no_measurement(
    name: str, after: int, servers: Servers
) -> None:
    """Its counters begin at 0; those of a process with a start time may have passed the old ones."""
    running = servers.start(SHOWN[name], answered=4)
    side = servers.open(find_server(running.url))
    opened_window = side.meter.start()
    running.answered = 5
    assert opened_window.read().totals["items"] == TOKENS
    running.restart()
    running.answered = after
    with raised(MeasurementError, "restarted"):
        opened_window.read()


@pytest.mark.parametrize(
    ("unkind", "said", "then"),
    [
        ({"broken": True}, "without its number of tokens", "usage"),
        ({"posted": 429}, "HTTP 429", "lower the rate"),
        ({"posted": 503}, "HTTP 503", "until the model is loaded"),
        ({"posted": 401}, "HTTP 401", "API key"),
    ],
)
def test_answers_without_load_are_refused_before_and_within_a_window(
    unkind: dict[str, Any], said: str, then: str, servers: Servers
) -> None:
    running = servers.start(SHOWN["openai"], **unkind)
    server = find_server(running.url)
    with raised(ActuationError, said) as refused:
        demand_answer(server, LOAD.bodies("small", {}, 0).split("\n")[0])
    assert then in refused.value.hint
    side = servers.open(server, LOAD)
    measured = side.meter.start()
    with raised(MeasurementError, said) as failed:
        for _ in range(6000):
            measured.read()
            time.sleep(0.01)
    assert then in failed.value.hint


@pytest.mark.parametrize("reasoning", [False, True])
def test_events_without_text_do_not_count_as_the_first_token(
    reasoning: bool, servers: Servers
) -> None:
    running = servers.start(SHOWN["ollama"], empty=1, quiet_s=0.1, reasoning=reasoning)
    reading = window(servers.open(find_server(running.url), LOAD), 4)
    assert reading.estimates["ttft_p50_ms"].mean >= 100.0


def test_every_style_of_a_text_has_its_librarys_lines() -> None:
    """The orders are those of prometheus_client and of the other libraries' sources."""
    name = "vllm:generation_tokens_total"
    text = exposition(SHOWN["vllm"].metrics, "python", 1)
    assert f'{name}{{engine="0",model_name="small"}} 8.0' in text
    assert "# TYPE vllm:generation_tokens_created gauge" in text
    assert exposition(SHOWN["sglang"].metrics, "processes", 0) == ""
