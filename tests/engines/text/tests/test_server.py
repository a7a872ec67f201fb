from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.processes import run_to_end, until

pytest.importorskip("torch", reason="the text workload needs torch")

from agents.load import exposition
from tests.engines.text.recipe import TARGET, save
from tests.engines.text.tests.running import COMMAND, DRAFT, KNOWN, PLAN, UNKNOWN, RunningText
from tests.engines.text.tests.tiny import tiny

SLOW_S = 60.0


@pytest.fixture(scope="module")
def running(text_models: Path) -> Iterator[RunningText]:
    running = RunningText(text_models)
    yield running
    running.close()


@pytest.fixture
def server(running: RunningText) -> RunningText:
    """The shared server, at its default setting."""
    assert running.put(speculation_length=0, draft=DRAFT).status_code == 200
    return running


def test_it_writes_the_same_at_any_length_streamed_or_whole(server: RunningText) -> None:
    plain = server.complete()
    assert plain == {"content": (2 * KNOWN)[:40], "tokens_predicted": 40, "stop": True}
    for length, draft in ((3, DRAFT), (8, DRAFT), (5, "ngram")):
        assert server.put(speculation_length=length, draft=draft).status_code == 200
        assert server.complete() == plain
        events = server.streamed()
        assert "".join(event["content"] for event in events) == plain["content"]
        assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
        assert events[-1]["tokens_predicted"] == 40
        assert len(events) < 30, "a step that accepts several tokens tells them together"


def test_sampling_is_repeated_by_its_seed(server: RunningText) -> None:
    server.put(speculation_length=4)
    first = server.complete(UNKNOWN, temperature=1.0, seed=7)
    assert server.complete(UNKNOWN, temperature=1.0, seed=7) == first
    assert server.complete(UNKNOWN, temperature=1.0, seed=8) != first


def test_the_table_is_set_live_read_back_and_followed(server: RunningText) -> None:
    with server.loaded(4, KNOWN) as wrong:
        reply = server.client.put("/plan", json={"plan": PLAN}).raise_for_status().json()
        assert [row["below"] for row in reply["plan"]["rows"]] == [1.5, "Infinity"]
        until(lambda: server.get("/plan")["row"] == 1, within_s=SLOW_S)
        until(lambda: server.get("/stats")["decoding"] == 4, within_s=SLOW_S)
        assert server.get("/knobs")["setting"] == {"speculation_length": 2, "draft": DRAFT}
    with server.loaded(1, KNOWN) as alone:
        until(lambda: server.get("/plan")["row"] == 0, within_s=SLOW_S)
        assert server.get("/knobs")["setting"]["speculation_length"] == 6
        ended = server.client.delete("/plan").json()
        assert ended == {"plan": None, "row": None}
    assert wrong == [] and alone == []


def drafted_share(server: RunningText, seconds: float = 0.5) -> float:
    """Return the share of sequence-steps with drafting within some time."""
    before = server.get("/stats")
    time.sleep(seconds)
    after = server.get("/stats")
    passes = after["passes"] - before["passes"]
    return float(after["steps"] - before["steps"]) / passes if passes else 0.0


@pytest.mark.slow
def test_where_acceptance_collapses_it_goes_back_to_plain_decoding_and_returns(
    server: RunningText,
) -> None:
    server.client.put("/plan", json={"plan": PLAN}).raise_for_status()
    with server.loaded(1, KNOWN) as wrong:
        until(lambda: drafted_share(server) > 0.9, within_s=SLOW_S)
    with server.loaded(1, UNKNOWN) as also_wrong:
        until(lambda: drafted_share(server) < 0.1, within_s=SLOW_S)
        assert server.get("/plan")["plan"] is not None, "the plan is still in force"
    with server.loaded(1, KNOWN) as still_wrong:
        until(lambda: drafted_share(server) > 0.9, within_s=SLOW_S)
    assert wrong == also_wrong == still_wrong == []


def test_its_metrics_are_served_to_prometheus_too(server: RunningText) -> None:
    server.put(speculation_length=3)
    server.complete()
    stats, text = server.get("/stats"), server.client.get("/metrics").text
    samples = exposition.parse(text, ["text_engine_items", "text_engine_accepted"], server.url)
    assert exposition.counter(samples, "text_engine_items", lambda _: True) == stats["items"]
    assert exposition.counter(samples, "text_engine_accepted", lambda _: True) == stats["accepted"]
    assert len(stats["accepted_by_position"]) >= 3
    assert stats["accepted_by_position"] == sorted(stats["accepted_by_position"], reverse=True)
    assert stats["verify_s"] > 0.0 and stats["draft_s"] > 0.0 and stats["cpu_s"] > 0.0


ROW = {"below": "Infinity", "setting": {"speculation_length": 9, "draft": DRAFT}}
HOLE = {"below": "Infinity", "setting": {"speculation_length": 2}}
OPEN = {"below": 4.0, "setting": {"speculation_length": 2, "draft": DRAFT}}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "/completion", b"{", 422, "body"),
        ("POST", "/completion", b"[" * 100_000, 422, "body"),
        ("POST", "/completion", b"\xff\xfe", 422, "body"),
        ("POST", "/completion", b'{"prompt": ""}', 422, "prompt"),
        ("POST", "/completion", b'{"prompt": "\\ud800"}', 422, "prompt|body"),
        ("POST", "/completion", b'{"prompt": "' + b"x" * 300 + b'"}', 422, "fit a context of 256"),
        ("POST", "/generate", b'{"prompt": "a", "stream": true, "n_predict": 0}', 422, "n_predict"),
        ("POST", "/completion", b'{"prompt": "a", "temperature": -1}', 422, "temperature"),
        ("POST", "/completion", b'{"prompt": "a", "seed": 1e400}', 422, "seed|body"),
        ("POST", "/completion", b"x" * (2 << 20), 413, "bytes"),
        ("GET", "/completion", b"", 405, "Not Allowed"),
        ("GET", "/nowhere", b"", 404, "Not Found"),
        ("GET", "/prompts?count=many", b"", 422, "whole number"),
        ("GET", "/prompts?kind=poems", b"", 422, "poems"),
        ("PUT", "/knobs", b"[]", 422, "JSON object"),
        ("PUT", "/knobs", b"{", 400, "not JSON"),
        ("PUT", "/knobs", b'{"speculation_length": 9}', 422, "speculation_length"),
        ("PUT", "/knobs", b'{"speculation_length": NaN}', 422, "speculation_length"),
        ("PUT", "/knobs", b'{"speculation_length": [1]}', 422, "speculation_length"),
        ("PUT", "/knobs", b'{"draft": "unheard of"}', 422, "unheard of"),
        ("PUT", "/knobs", b'{"speed": 1}', 422, "speed"),
        ("PUT", "/plan", b"null", 422, "not a plan"),
        ("PUT", "/plan", {"plan": {"rows": []}}, 422, "boundaries"),
        ("PUT", "/plan", {"plan": {"rows": [ROW]}}, 422, "speculation_length"),
        ("PUT", "/plan", {"plan": {"rows": [HOLE]}}, 422, "draft"),
        ("PUT", "/plan", {"plan": {"rows": [OPEN], "by": "decoding_requests"}}, 422, "infinity"),
        ("PUT", "/plan", {"plan": {**PLAN, "by": "price"}}, 409, "price"),
    ],
)
def test_bad_input_is_answered_clearly_and_stops_nothing(
    server: RunningText,
    method: str,
    path: str,
    body: bytes | dict[str, object],
    status: int,
    says: str,
) -> None:
    if isinstance(body, dict):
        answer = server.client.request(method, path, json=body)
    else:
        answer = server.client.request(method, path, content=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] and any(word in error["message"] for word in says.split("|")), error
    assert server.get("/plan")["plan"] is None
    assert server.complete(n_predict=3)["tokens_predicted"] == 3


def test_a_page_under_another_host_name_reaches_nothing(server: RunningText) -> None:
    answer = server.client.put(
        "/knobs", json={"speculation_length": 3}, headers={"Host": "evil.example"}
    )
    assert answer.status_code == 400
    assert server.get("/knobs")["setting"]["speculation_length"] == 0


def test_a_killed_server_cuts_its_stream_and_starts_again_at_its_default(text_models: Path) -> None:
    first = RunningText(text_models)
    again = None
    try:
        before = first.get("/stats")["incarnation"]
        first.client.put("/plan", json={"plan": PLAN}).raise_for_status()
        body = {"prompt": KNOWN, "n_predict": 200, "ignore_eos": True, "stream": True}
        with (
            pytest.raises(httpx2.TransportError),
            first.client.stream("POST", "/generate", json=body) as response,
        ):
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
            for _ in response.iter_lines():
                pass
            first.get("/stats")
        again = RunningText(text_models, port=int(first.url.rpartition(":")[2]))
        assert again.get("/stats")["incarnation"] != before
        assert again.get("/plan") == {"plan": None, "row": None}
        assert again.get("/knobs")["setting"]["speculation_length"] == 0
        assert again.complete()["content"] == (2 * KNOWN)[:40]
    finally:
        first.close()
        if again is not None:
            again.close()


def test_a_signal_stops_the_server_gracefully(text_models: Path) -> None:
    running = RunningText(text_models)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(SLOW_S) == 0
    running.close()


def test_the_parent_can_end_it_during_training(tmp_path: Path) -> None:
    options = ["--cache", str(tmp_path), "--while-stdin-open"]
    process = subprocess.Popen([*COMMAND, *options], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    until(lambda: any(tmp_path.glob("*/lock")), within_s=SLOW_S)
    process.stdin.close()
    assert process.wait(SLOW_S) == -signal.SIGTERM
    process.stderr.close()
    assert list(tmp_path.glob("*/*.pt")) == []


@pytest.mark.parametrize(
    ("vocab", "context", "says"), [(300, 128, "vocabulary of 300"), (258, 64, "reads 64 tokens")]
)
def test_a_draft_that_does_not_go_with_the_target_is_refused(
    tmp_path: Path, vocab: int, context: int, says: str
) -> None:
    save(tiny(1, 32, 0), tmp_path, TARGET)
    save(tiny(1, 32, 1, vocab, context), tmp_path, "other")
    ended = run_to_end([*COMMAND, "--models", str(tmp_path)], timeout=SLOW_S)
    assert ended.returncode == 2
    assert says in ended.stderr and "Traceback" not in ended.stderr


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    ended = run_to_end([*COMMAND, "--models", str(tmp_path)], timeout=SLOW_S)
    assert ended.returncode == 2
    assert f"target in {tmp_path} cannot be read" in ended.stderr
