"""What docs/llm.md says of vLLM, on a real one: `make test-vllm`. One server for all tests, one core."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
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
LONGER = "callers=2,prompt=32,output=16"
SERVED = "vllm:request_success_total"
MEDIAN = math.sqrt(math.pi / 2.0)
"""A median's standard error relative to a mean's, if values are normal."""
CLIENT_MS = 20.0
"""GuideLLM's clients wait for the cores that the engine fills: in three runs 9 to 14 ms at first tokens."""
GUIDED_S = 75
"""GuideLLM's run, in which a window of ours with its preparation lies."""
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
    """Return a window of `observe` under our load."""
    options = ["--device", "cpu", "--generate-load", LONGER, "--window", "20", "--for", "20s"]
    done = jouletune("observe", "--llm", url, *options, "--json")
    assert done.returncode == 0, done.stderr
    (window,) = json.loads(done.stdout)["windows"]
    return dict(window)


def guiding(url: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start GuideLLM with the same load; it writes benchmarks.json."""
    words = ["run", "--disable-console", "--profile", "kind=concurrent,streams=2"]
    words += ["--backend", f"kind=openai_http,target={url},request_format=/v1/completions"]
    words += ["--constraint", f"kind=max_duration,seconds={GUIDED_S}"]
    words += ["--tokenizer", f"kind=hf_auto,model={environment() / 'model'}", "--data"]
    words += ["kind=synthetic_text,prompt_tokens=32,output_tokens=16"]
    return subprocess.Popen([str(guidellm()), *words], cwd=folder, env=os.environ | ENVIRON)


def mean_of(values: list[float]) -> tuple[float, float]:
    """Return a mean and its standard error."""
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


@pytest.mark.skipif(
    not guidellm().exists(), reason=f"no {guidellm()}: python -m tests.vllm.build guidellm"
)
def test_our_generator_agrees_with_guidellm(vllm: RunningVllm, tmp_path: Path) -> None:
    """Both at the same time: GuideLLM takes processor time from the engine, so turns are unlike."""
    before = total(vllm.metrics(), SERVED)
    with guiding(vllm.url, tmp_path) as guide:
        until(lambda: total(vllm.metrics(), SERVED) > before + 2, "GuideLLM's load", 120.0)
        ours = observed(vllm.url)
        assert guide.wait(120.0) == 0
    (theirs,) = json.loads((tmp_path / "benchmarks.json").read_text())["benchmarks"]
    began = datetime.fromisoformat(ours["started_at"]).timestamp()
    within = [
        one
        for one in theirs["requests"]["successful"]
        if began <= one["request_start_time"] and one["request_end_time"] <= began + ours["seconds"]
    ]
    ttft = [float(one["time_to_first_token_ms"]) for one in within]
    guided = {
        "latency_mean_ms": mean_of([1e3 * one["request_latency"] for one in within]),
        "ttft_p50_ms": (statistics.median(ttft), MEDIAN * mean_of(ttft)[1]),
    }
    for name, (value, stderr) in guided.items():
        shown = ours["metrics"][name]
        error = math.hypot(stderr, shown["stderr"])
        assert abs(shown["value"] - value) <= 2.0 * error + CLIENT_MS, (name, value, stderr, shown)


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
