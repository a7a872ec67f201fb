"""The proxy from its callers' side, in front of the fake server, with both ways of setting a length."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agents.speculation.fallback import PLAIN_STEPS
from tests.llama.running import RunningProxy, command_of, proxy_for, running
from tests.processes import gone, kill, until
from tests.unit.agents.workloads.engine.conftest import models, stand_in

PLAN: dict[str, Any] = {
    "by": "decoding_requests",
    "rows": [
        {"below": 1.5, "setting": {"speculation_length": 6}},
        {"below": "Infinity", "setting": {"speculation_length": 0}},
    ],
}


ON_STAND_IN = ("--draft", "{draft}", "--", "{python}", "{stand_in}", "--build", "0.3.36")


def plan_up_to(below: float) -> dict[str, Any]:
    """Return a new plan, because results are kept per plan."""
    return {**PLAN, "rows": [{**PLAN["rows"][0], "below": below}, PLAN["rows"][1]]}


def streamed(proxy: RunningProxy, tokens: int) -> str:
    """Return the text of a stream that arrived."""
    request = {"prompt": "x", "stream": True, "n_predict": tokens}
    text = ""
    with proxy.client.stream("POST", "/completion", json=request) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: "):
                text += json.loads(line.removeprefix("data: "))["content"]
    return text


def numbered(tokens: int) -> str:
    return "".join(f"{i} " for i in range(tokens))


def test_a_build_that_ignores_requests_is_known_by_its_answers(
    by_restart: RunningProxy, per_request: RunningProxy
) -> None:
    assert (by_restart.per_request, per_request.per_request) == (False, True)
    costs = [p.get("/knobs")["knobs"][0]["cost"]["restart"] for p in (by_restart, per_request)]
    assert costs == [True, False]


def test_a_length_is_in_the_answers_from_the_change_on(
    by_restart: RunningProxy, per_request: RunningProxy
) -> None:
    for proxy in (by_restart, per_request):
        for length in (3, 0):
            proxy.set_length(length)
            answer = proxy.complete(n_predict=24)
            assert answer["length"] == length
            assert ("draft_n" in answer["timings"]) is (length > 0)


def test_an_answer_passes_through_byte_for_byte(by_restart: RunningProxy) -> None:
    body = bytes(range(256)) * 300
    response = by_restart.client.post("/anything?a=%2F&b", content=body)
    assert response.content == body
    assert [name for name in response.headers if name in ("date", "server", "via")] == [
        "server",
        "date",
    ]
    assert response.headers["server"].startswith("BaseHTTP")
    seen = by_restart.client.get("/echo/%2e%2E?q=%20", headers={"X-One": "1", "Connection": "x"})
    assert seen.json()["path"] == "/echo/%2e%2E?q=%20"
    assert ["x-one", "1"] in [[name.lower(), value] for name, value in seen.json()["headers"]]


def test_an_error_of_the_server_is_its_own(by_restart: RunningProxy) -> None:
    response = by_restart.client.post("/completion", content=b"{nonsense")
    assert (response.status_code, response.json()["error"]["message"]) == (400, "not JSON")


def test_a_plan_gives_each_request_the_length_for_the_load(per_request: RunningProxy) -> None:
    reply = per_request.put("/plan", {"plan": plan_up_to(1.6)}).json()
    assert reply["plan"]["rows"][1]["below"] == "Infinity"
    for _ in range(PLAIN_STEPS):  # the time of plain decoding is measured first
        assert per_request.complete(n_predict=16)["length"] == 0
    assert 6 in [per_request.complete(n_predict=64)["length"] for _ in range(5)]
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(streamed, per_request, 400)
        until(lambda: per_request.stats()["decoding"] == 1, "the stream does not decode")
        assert per_request.complete(n_predict=16)["length"] == 0
        assert per_request.get("/plan")["row"] == 1
        assert stream.result() == numbered(400)
    assert 6 in [per_request.complete(n_predict=64)["length"] for _ in range(5)]
    assert per_request.get("/knobs")["setting"] == {"speculation_length": 6}
    assert per_request.client.delete("/plan").json() == {"plan": None, "row": None}


def test_a_plan_that_is_followed_again_keeps_the_times_of_plain_decoding(
    per_request: RunningProxy,
) -> None:
    plan = {"plan": plan_up_to(1.7)}
    per_request.put("/plan", plan)
    for _ in range(PLAIN_STEPS):
        assert per_request.complete(n_predict=16)["length"] == 0
    per_request.set_length(0)
    per_request.put("/plan", plan)
    assert 6 in [per_request.complete(n_predict=64)["length"] for _ in range(PLAIN_STEPS)]


@pytest.mark.slow
def test_a_plan_falls_back_to_0_while_nothing_is_accepted(per_request: RunningProxy) -> None:
    per_request.put("/plan", {"plan": plan_up_to(1.8)})
    lengths = [per_request.complete(n_predict=32)["length"] for _ in range(40)]
    assert lengths.count(6) > 20
    per_request.client.post("/stand-in", json={"accepts": False})
    try:
        until(lambda: per_request.complete(n_predict=32)["length"] == 0, "it drafts on", 10.0)
        lengths = [per_request.complete(n_predict=32)["length"] for _ in range(40)]
        assert lengths.count(0) > 20  # on a busy machine the times scatter more, with more retries
    finally:
        per_request.client.post("/stand-in", json={"accepts": True})
        per_request.set_length(0)


def test_setting_a_length_ends_a_plan(per_request: RunningProxy) -> None:
    per_request.put("/plan", {"plan": PLAN})
    per_request.set_length(2)
    assert per_request.get("/plan")["plan"] is None


@pytest.mark.parametrize(
    ("plan", "status", "words"),
    [
        ({**PLAN, "by": "price"}, 409, "follows decoding_requests"),
        ({**PLAN, "rows": []}, 422, "ascend and end at infinity"),
        (
            {**PLAN, "rows": [{"below": "Infinity", "setting": {"speculation_length": 99}}]},
            422,
            "99",
        ),
        ({**PLAN, "rows": [{"below": "Infinity", "setting": {}}]}, 422, "speculation_length"),
        (None, 422, "the body has no plan"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(
    per_request: RunningProxy, plan: object, status: int, words: str
) -> None:
    response = per_request.put("/plan", {"plan": plan})
    assert response.status_code == status
    assert words in response.json()["error"]["message"]
    assert per_request.get("/plan")["plan"] is None


def test_no_plan_is_followed_where_each_change_takes_a_restart(by_restart: RunningProxy) -> None:
    response = by_restart.put("/plan", {"plan": PLAN})
    assert (response.status_code, "restart" in response.text) == (409, True)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"speculation_length": 9}, "choose one of 0, 1"),
        ({"speculation_length": True}, "True"),
        ({"warp_factor": 1}, "warp_factor"),
        ([1], "JSON object"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(
    by_restart: RunningProxy, setting: object, words: str
) -> None:
    before = by_restart.get("/knobs")["setting"]
    response = by_restart.put("/knobs", setting)
    assert (response.status_code, words in response.text) == (422, True)
    assert by_restart.get("/knobs")["setting"] == before


def test_a_page_of_another_host_does_not_reach_the_knobs(by_restart: RunningProxy) -> None:
    response = by_restart.client.get("/knobs", headers={"Host": "evil.example"})
    assert response.status_code == 400
    assert by_restart.client.get("/health", headers={"Host": "llm.example"}).is_success


@pytest.mark.promise("a llama-server dies, or a new draft length needs a restart")
def test_no_request_is_lost_in_changes_under_load(by_restart: RunningProxy) -> None:
    stop = threading.Event()
    texts: list[str] = []

    def load() -> None:
        while not stop.is_set():
            texts.append(streamed(by_restart, 60))

    before = by_restart.stats()
    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(load) for _ in range(4)]
        try:
            for length in (4, 1, 0, 7):
                by_restart.set_length(length)
        finally:
            stop.set()
        for caller in callers:
            caller.result()
    after = by_restart.stats()
    assert set(texts) == {numbered(60)}
    assert after["arrived"] - before["arrived"] == len(texts)
    assert after["items"] - before["items"] == 60 * len(texts)
    assert (after["failed"], after["repeated"]) == (before["failed"], before["repeated"])
    assert after["switches"] - before["switches"] == 4


@pytest.mark.promise("a llama-server dies, or a new draft length needs a restart")
def test_the_former_server_finishes_its_requests(by_restart: RunningProxy) -> None:
    by_restart.set_length(0)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(streamed, by_restart, 1000)
        until(lambda: by_restart.stats()["decoding"] == 1, "the stream does not decode")
        by_restart.set_length(5)
        assert len(by_restart.stats()["pids"]) == 2
        assert stream.result() == numbered(1000)
    until(lambda: len(by_restart.stats()["pids"]) == 1, "the former server was not ended")


@pytest.mark.promise(
    "a llama-server dies, or a new draft length needs a restart",
    "requests wait for the new server; the old one finishes its requests",
)
def test_a_server_that_dies_is_replaced_and_waiting_requests_are_answered(
    by_restart: RunningProxy,
) -> None:
    by_restart.set_length(3)
    restarts = by_restart.stats()["restarts"]
    (pid,) = by_restart.stats()["pids"]
    kill(pid)
    assert by_restart.complete(n_predict=16)["length"] == 3
    assert by_restart.stats()["restarts"] == restarts + 1


def test_a_stream_whose_server_dies_is_cut_off_and_not_ended(by_restart: RunningProxy) -> None:
    failed = by_restart.stats()["failed"]
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(streamed, by_restart, 5000)
        until(lambda: by_restart.stats()["decoding"] == 1, "the stream does not decode")
        kill(by_restart.stats()["pids"][0])
        with pytest.raises(httpx2.RemoteProtocolError):
            stream.result()
    assert by_restart.stats()["failed"] == failed + 1


def test_a_caller_that_disconnects_ends_its_request(by_restart: RunningProxy) -> None:
    request = {"prompt": "x", "stream": True, "n_predict": 100_000}
    with by_restart.client.stream("POST", "/completion", json=request) as response:
        next(response.iter_raw())
    until(lambda: by_restart.stats()["inside"] == 0, "the request goes on without its caller")


def test_totals_go_on_over_servers(by_restart: RunningProxy) -> None:
    by_restart.set_length(4)
    by_restart.complete(n_predict=32)
    before = by_restart.stats()
    by_restart.complete(n_predict=32)
    by_restart.set_length(2)
    after = by_restart.stats()
    assert after["steps"] > before["steps"] > 0
    assert all(
        a >= b
        for a, b in zip(after["accepted_by_position"], before["accepted_by_position"], strict=False)
    )
    assert after["cpu_s"] >= before["cpu_s"] > 0.0


def test_missing_metrics_are_reported_and_affect_nothing_else(by_restart: RunningProxy) -> None:
    by_restart.client.post("/stand-in", json={"metrics": False})
    try:
        before = by_restart.stats()
        assert "start it with --metrics" in before["metrics_missing"]
        by_restart.complete(n_predict=8)
        assert by_restart.stats()["items"] - before["items"] == 8
    finally:
        by_restart.client.post("/stand-in", json={"metrics": True})


def test_another_draft_starts_another_server(tmp_path: Path) -> None:
    target, draft = models(tmp_path)
    other = tmp_path / "other.gguf"
    other.write_text("bytes")
    with proxy_for(stand_in("0.3.16", target), {"a": draft, "b": other}, tmp_path) as proxy:
        pids = proxy.stats()["pids"]
        setting = {"speculation_length": 3, "draft": "b"}
        assert proxy.put("/knobs", setting).json() == {"setting": setting}
        until(lambda: len(proxy.stats()["pids"]) == 1, "the former server was not ended")
        assert proxy.stats()["pids"] != pids
        plan = {**PLAN, "rows": [{"below": "Infinity", "setting": {**setting, "draft": "a"}}]}
        assert proxy.put("/plan", {"plan": plan}).status_code == 409


def test_methods_of_drafting_are_words_of_a_knob(tmp_path: Path) -> None:
    target, draft = models(tmp_path)
    methods = ["--draft", f"d={draft}", "--draft", "ngram-simple"]
    command = [*methods, "--state-dir", str(tmp_path), "--", *stand_in("0.3.36", target)]
    with running(command, tmp_path) as proxy:
        (knob,) = (k for k in proxy.get("/knobs")["knobs"] if k["name"] == "draft")
        assert knob["values"] == ["d", "ngram-simple"]
        setting = {"speculation_length": 3, "draft": "ngram-simple"}
        assert proxy.put("/knobs", setting).json() == {"setting": setting}
        assert "draft_n" not in proxy.complete(n_predict=24)["timings"]
        again = proxy.complete(prompt="a line\na line", n_predict=24)
        assert (again["length"], again["timings"]["draft_n"] > 0) == (3, True)
        back = {"speculation_length": 3, "draft": "d"}
        assert proxy.put("/knobs", back).json() == {"setting": back}
        assert proxy.complete(n_predict=24)["timings"]["draft_n"] > 0


def test_flags_of_the_server_are_knobs_that_change_together_without_a_lost_request(
    tmp_path: Path,
) -> None:
    target, draft = models(tmp_path)
    command = ["--knob", "threads=2,1", "--draft", f"d={draft}", "--state-dir", str(tmp_path)]
    with running([*command, "--", *stand_in("0.3.36", target)], tmp_path) as proxy:
        (knob,) = (k for k in proxy.get("/knobs")["knobs"] if k["name"] == "threads")
        assert (knob["values"], knob["default"], knob["cost"]["restart"]) == ([1, 2], 2, True)
        assert proxy.complete(n_predict=8)["threads"] == 2
        switches = proxy.stats()["switches"]
        setting = {"speculation_length": 3, "threads": 1}
        assert proxy.put("/knobs", setting).json() == {"setting": setting}
        answer = proxy.complete(n_predict=24)
        assert (answer["threads"], answer["length"]) == (1, 3)
        until(lambda: len(proxy.stats()["pids"]) == 1, "the former server was not ended")
        kill(proxy.stats()["pids"][0])
        assert proxy.complete(n_predict=8)["threads"] == 1
        stats = proxy.stats()
        assert (stats["switches"] - switches, stats["failed"]) == (1, 0)


def test_a_draft_of_another_vocabulary_is_found_before_anything_is_served(tmp_path: Path) -> None:
    target, draft = models(tmp_path, draft="words")
    message = refused(tmp_path, ["--draft", str(draft), "--", *stand_in("0.3.36", target)])
    assert "drafted 0 tokens" in message
    assert "vocabulary" in message


def test_an_unreadable_model_is_reported_with_the_servers_message(tmp_path: Path) -> None:
    target, draft = models(tmp_path)
    target.write_text("unreadable")
    message = refused(tmp_path, ["--draft", str(draft), "--", *stand_in("0.3.36", target)])
    assert "error: failed to load the model" in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the command of an engine after --"),
        (
            ["--length", "1", "--knob", "threads=1,2", "--", "llama-server"],
            "--length needs a draft",
        ),
        (["--length", "9", "--draft", "x", "--", "llama-server"], "raise --longest"),
        (["--draft", "/no/such.gguf", "--", "llama-server"], "does not exist"),
        (["--draft", "{draft}", "--", "/no/llama-server"], "give the path of the engine"),
        (
            ["--draft", "{draft}", "--draft", "{draft}", "--", "llama-server"],
            "have the name 'draft'",
        ),
        (["--draft", "draft-eagle3", "--", "llama-server"], "draft-eagle3 needs a model"),
        (["--draft", "ngram-mod:{draft}", "--", "llama-server"], "ngram-mod takes no model"),
        (
            ["--draft", "ngram-cache", "--", "{python}", "{stand_in}"],
            "cannot set the length of 'ngram-cache'",
        ),
        (
            ["--draft", "ngram-simple", "--", "{python}", "{stand_in}", "--build", "0.3.16"],
            "use one of draft-simple",
        ),
        (["--draft", "{draft}", "--", "llama-server", "--port", "1"], "--port is set by the proxy"),
        (
            ["--draft", "{draft}", "--", "{python}", "{stand_in}", "--build", "0.2.0"],
            "lists neither",
        ),
        (["--knob", "speed=1,2", *ON_STAND_IN], "--speed"),
        (["--knob", "spec_type=a,b", *ON_STAND_IN], "--spec-type"),
        (["--knob", "threads=1,2", *ON_STAND_IN, "-t", "2"], "--threads"),
        (["--knob", "threads=1,2"], "give the command of an engine after --"),
    ],
)
def test_bad_input_is_refused_in_words(tmp_path: Path, arguments: list[str], words: str) -> None:
    target, draft = models(tmp_path)
    python, script, *_ = stand_in("0.2.0", target)
    filled = [a.format(draft=draft, python=python, stand_in=script) for a in arguments]
    assert words in refused(tmp_path, filled)


def test_a_proxy_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    target, draft = models(tmp_path)
    with proxy_for(stand_in("0.3.36", target), {"d": draft}, tmp_path) as proxy:
        (pid,) = proxy.stats()["pids"]
        proxy.process.kill()
        until(lambda: gone(pid), "llama-server outlived its proxy")


def test_an_ending_proxy_lets_streams_finish(tmp_path: Path) -> None:
    target, draft = models(tmp_path)
    command = stand_in("0.3.36", target, "--step-ms", "2")
    with (
        proxy_for(command, {"d": draft}, tmp_path) as proxy,
        ThreadPoolExecutor(1) as pool,
    ):
        stream = pool.submit(streamed, proxy, 400)
        until(lambda: proxy.stats()["decoding"] == 1, "the stream does not decode")
        proxy.process.send_signal(signal.SIGTERM)
        assert stream.result() == numbered(400)
        assert proxy.process.wait(60) == 0


def refused(folder: Path, arguments: list[str]) -> str:
    """Return the message of a proxy that does not start."""
    command = command_of(["--port", "0", "--state-dir", str(folder), *arguments])
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 2), done.stderr
    return done.stderr
