"""What docs/llm.md says of vLLM, on a real one: `make test-vllm`. One server for all tests, one core."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agents.workloads.engine.child import writers
from agents.workloads.http.llm.detection import find_server
from agents.workloads.http.llm.engines import VLLM
from agents.workloads.http.llm.service_file import available
from tests.processes import gone, reserved_port, until
from tests.vllm.build import VERSION, environment, guidellm, missing
from tests.vllm.serving import ENVIRON, START_S, jouletune, serving

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
DRAFTS = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
"""Given by words without a quote, as the command of a systemd unit has them: docs/units.md."""
LOAD = "callers=4,prompt=32,output=8"
LONGER = "callers=1,prompt=32,output=16"
CLIENT_MS = 10.0
"""The greatest time of a client between an answer and its next request, and between two clocks."""
GUIDED = ("request_latency", "time_to_first_token_ms", "requests_per_second")
INTERVAL = 3.92
"""The width of GuideLLM's confidence intervals in standard errors."""
KNOBS = ("max_num_seqs=8,1", "max_num_batched_tokens=512,32")
"""Nothing here beats the first values, so that a study ends without confirming: each start is 40 s."""


@dataclass
class RunningVllm:
    """The server, and the answers of `/health` by second while it loaded."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    loading: list[tuple[float, int]]

    def complete(self, prompt: str, tokens: int, **fields: object) -> dict[str, Any]:
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **fields}
        response = httpx2.post(f"{self.url}/v1/completions", json=body, timeout=120.0)
        assert response.is_success, response.text
        return dict(response.json())

    def metrics(self) -> str:
        return httpx2.get(f"{self.url}/metrics").text


def total(text: str, name: str) -> float:
    """Return the sum of a metric's samples."""
    rows = [r for r in text.splitlines() if r.startswith((f"{name}{{", f"{name} "))]
    return sum(float(row.split()[-1]) for row in rows)


def health(url: str) -> int:
    """Return the status of `/health`; 0 where nothing listens."""
    try:
        return httpx2.get(f"{url}/health", timeout=5.0).status_code
    except httpx2.HTTPError:
        return 0


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningVllm]:
    log, port = tmp_path_factory.mktemp("vllm") / "log", reserved_port()
    options = ["--max-num-seqs", "8", "--port", str(port)]
    options += [f"--speculative-config.{name}={value}" for name, value in DRAFTS.items()]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*serving(), "--host", "127.0.0.1", *options],
            env=os.environ | ENVIRON, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    url, began = f"http://127.0.0.1:{port}", time.monotonic()
    server = RunningVllm(process, url, log, [])

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        server.loading.append((time.monotonic() - began, health(url)))
        time.sleep(0.5)
        return server.loading[-1][1] == 200

    try:
        until(ready, "vLLM", START_S)
        yield server
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_nothing_listens_while_the_model_loads(vllm: RunningVllm) -> None:
    *loading, (_, last) = vllm.loading
    assert {status for _, status in loading} <= {0}
    assert last == 200


def test_vllm_is_recognised_with_its_histograms_before_the_first_request(vllm: RunningVllm) -> None:
    server = find_server(vllm.url)
    assert (server.engine, server.version) == (VLLM, VERSION)
    for metric in ("latency", "ttft", "tpot"):
        assert available(server, metric)
    assert total(server.text, VLLM.tokens) == 0.0


def test_tokens_are_counted_and_drafts_by_position(vllm: RunningVllm) -> None:
    before = vllm.metrics()
    answer = vllm.complete("def f(x):\n    return x\n" * 4, 48, temperature=0.0)
    after = vllm.metrics()
    assert answer["usage"]["completion_tokens"] == 48
    assert total(after, VLLM.tokens) - total(before, VLLM.tokens) == 48
    drafted, accepted = (
        total(after, f"vllm:spec_decode_num_{name}_tokens_total") for name in ("draft", "accepted")
    )
    assert 0.0 <= accepted <= drafted and drafted > 0.0
    places = [r for r in after.splitlines() if "accepted_tokens_per_pos_total{" in r]
    assert len(places) == 3 and all('position="' in row for row in places)


def test_a_check_names_the_server_and_sets_nothing(vllm: RunningVllm) -> None:
    done = jouletune("run", "--llm", vllm.url, "--generate-load", LOAD, "--check")
    assert f"vLLM {VERSION}" in done.stdout, done.stdout + done.stderr


def test_its_file_measures_every_listed_metric(vllm: RunningVllm, tmp_path: Path) -> None:
    file = tmp_path / "vllm.toml"
    done = jouletune("run", "--llm", vllm.url, "--generate-load", LOAD, "--write-config", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"port = {vllm.url.rpartition(':')[2]}" in file.read_text()
    done = jouletune("workload", "check", str(file), "--json")
    findings = {f["about"]: f for f in json.loads(done.stdout)["findings"]}
    left = {about: f["seen"] for about, f in findings.items() if not f["there"]}
    assert left.keys() <= {"second witness"}  # its counter of items counts tokens
    assert {"latency_mean_ms", "ttft_p99_ms", "tpot_p99_ms", "cpu_time_ms"} <= findings.keys()


def observed(url: str) -> dict[str, Any]:
    """Return the metrics of `observe` under our load."""
    options = ["--device", "cpu", "--generate-load", LONGER, "--window", "20", "--for", "20s"]
    done = jouletune("observe", "--llm", url, *options, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["metrics"])


def guided(url: str, folder: Path) -> dict[str, Any]:
    """Return GuideLLM's metrics of the requests that succeeded under the same load."""
    words = ["run", "--backend", f"kind=openai_http,target={url}", "--disable-console"]
    words += [
        "--profile",
        "kind=concurrent,streams=1",
        "--constraint",
        "kind=max_duration,seconds=20",
    ]
    words += ["--tokenizer", f"kind=hf_auto,model={environment() / 'model'}", "--data"]
    words += ["kind=synthetic_text,prompt_tokens=32,output_tokens=16"]
    command = [str(guidellm()), *words]
    subprocess.run(command, cwd=folder, env=os.environ | ENVIRON, check=True, timeout=300.0)
    (seen,) = json.loads((folder / "benchmarks.json").read_text())["benchmarks"]
    return {name: one["successful"] for name, one in seen["metrics"].items() if name in GUIDED}


@pytest.mark.skipif(
    not guidellm().exists(), reason=f"no {guidellm()}: python -m tests.vllm.build guidellm"
)
def test_our_generator_agrees_with_guidellm(vllm: RunningVllm, tmp_path: Path) -> None:
    """GuideLLM takes processor time from the engine: each latency is judged by its own rate of answers."""
    first, own, last = observed(vllm.url), guided(vllm.url, tmp_path), observed(vllm.url)
    latency, ttft, rate = (own[name] for name in GUIDED)
    error_ms = 1e3 * latency["std_dev"] / latency["count"] ** 0.5
    assert abs(1e3 * (latency["mean"] - 1.0 / rate["mean"])) <= 2.0 * error_ms + CLIENT_MS, own
    for ours in (first, last):
        mean, arrivals = ours["latency_mean_ms"], ours["arrival_rate_per_s"]["value"]
        assert abs(mean["value"] - 1e3 / arrivals) <= 2.0 * mean["stderr"] + CLIENT_MS, ours
    interval = ttft["percentile_cis"]["p50"]
    shown = [ours["ttft_p50_ms"] for ours in (first, last)]
    errors = [(interval["upper"] - interval["lower"]) / INTERVAL, *(s["stderr"] for s in shown)]
    apart = abs(sum(s["value"] for s in shown) / 2.0 - ttft["median"])
    assert apart <= 2.0 * math.hypot(*errors) + CLIENT_MS, (own, shown)


def test_a_sigterm_ends_streams_and_every_child(vllm: RunningVllm) -> None:
    """Last: the server ends. A stream under way ends or is cut; new requests are refused."""
    heard: list[str] = []

    def stream() -> None:
        body = {"prompt": "x", "max_tokens": 40, "ignore_eos": True, "stream": True}
        try:
            with httpx2.stream(
                "POST", f"{vllm.url}/v1/completions", json=body, timeout=60.0
            ) as answer:
                heard.extend(answer.iter_lines())
        except httpx2.HTTPError as error:
            heard.append(f"cut: {error!r}")

    caller = threading.Thread(target=stream)
    caller.start()
    until(lambda: heard, "the first token")
    vllm.process.send_signal(signal.SIGTERM)
    caller.join(120.0)
    assert not caller.is_alive()
    until(lambda: gone(vllm.process.pid) or vllm.process.poll() is not None, "its end", 60.0)
    assert health(vllm.url) == 0


def test_a_run_starts_it_tunes_its_flags_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    options = ["--device", "cpu", "--state-dir", str(tmp_path), "--generate-load", LOAD]
    options += ["--trials", "1", "--window", "6", "--foreign-share", "1"]
    options += [word for knob in KNOBS for word in ("--knob", knob)]
    for metric in ("ttft_p95_ms", "tpot_p95_ms"):
        options += ["--constraint", f"{metric} <= 3x baseline"]
    done = jouletune("run", "--llm", *options, "--", *serving())
    ended = (tmp_path / "proxy.log").read_text()
    assert done.returncode == 0, done.stderr + ended
    words = shlex.split(done.stdout.splitlines()[-1])
    assert words[: len(serving())] == serving(), done.stdout
    assert {"--max-num-seqs", "--max-num-batched-tokens"} <= {*words}
    assert not re.search(r"\b0 changes", ended), "only the baseline was measured"
    assert " 0 lost, " in ended and "0 restarts after a failure" in ended
    (log,) = tmp_path.glob("engine/engine-*/engine.log")
    assert not list(writers(str(log.resolve())))
