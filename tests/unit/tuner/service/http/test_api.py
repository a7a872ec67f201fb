"""The tuner over HTTP: tokens, refusals, and the answers to agents and operators."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from anyio import to_thread
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from db.history import HistoryRow
from tests.builders import Time, applied, device, policies, setting, window
from tests.builders import study as at_hold
from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.web.site import Site
from tuner.core import (
    Better,
    Estimate,
    Level,
    Metric,
    Origin,
    Outcome,
    Phase,
    Plan,
    Quantity,
    TrialState,
)
from tuner.service.http import sessions
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import (
    ORDER,
    Assignment,
    Change,
    Poll,
    Receipt,
    Registration,
    Release,
    StudyDraft,
    StudyReport,
    StudyView,
    TrialReport,
)

TOKEN = "secret"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
DRAFT = StudyDraft(
    devices=("sim",), constraints=("latency_p99_ms <= 1.2x baseline",), policy="scripted"
)


@pytest.fixture
def operations() -> Operations:
    return Operations(Loop(memory_store(), policies, Time().now))


@pytest.fixture
def client(operations: Operations) -> Iterator[TestClient]:
    app = create_app(operations, TOKEN, frozenset({"testserver"}), "0")
    with TestClient(app, headers=HEADERS) as opened:
        yield opened


def send(client: TestClient, method: str, path: str, body: Any = None) -> httpx2.Response:  # noqa: ANN401
    content = body.model_dump_json() if body is not None else None
    return client.request(method, path, content=content)


def problem(response: httpx2.Response) -> tuple[int, str]:
    body = response.json()
    assert body["message"]
    return response.status_code, body["code"]


@pytest.fixture
def study(client: TestClient) -> StudyView:
    send(client, "PUT", "/v1/devices/sim", Registration(device=device()))
    return StudyView.model_validate_json(send(client, "POST", "/v1/studies", DRAFT).content)


def poll(client: TestClient) -> object:
    body = Poll(agent="host", applied=applied())
    return ORDER.validate_json(send(client, "POST", "/v1/devices/sim/next", body).content)


def report_of(order: Assignment, outcome: Outcome) -> TrialReport:
    lease = order.model_dump(include={"study", "trial", "attempt", "token", "nonce"})
    return TrialReport(device="sim", outcome=outcome, **lease)


def test_everything_but_health_needs_the_token(
    operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FAILURES_AT_ONCE", 1_000.0)
    client = TestClient(
        create_app(operations, TOKEN, frozenset({"testserver"}), "0"), headers=HEADERS
    )
    paths = [
        (path, method.upper())
        for path, methods in client.get("/v1/openapi.json").json()["paths"].items()
        for method in methods
    ]
    assert len(paths) > 15
    for path, method in paths:
        bare = client.request(method, path, headers={"Authorization": ""})
        expected = 200 if path in ("/v1/health", "/v1/ready") else 401
        assert bare.status_code == expected, path
    wrong = client.get("/v1/studies", headers={"Authorization": "Bearer wrong"})
    assert problem(wrong) == (401, "unauthorised")


def test_other_names_and_origins_are_refused(client: TestClient) -> None:
    assert problem(client.get("/v1/health", headers={"Host": "evil.example"})) == (400, "host")
    foreign = client.get("/v1/studies", headers={"Origin": "http://evil.example"})
    assert problem(foreign) == (403, "origin")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed"),
        (b"[]", 400, "malformed"),
        (b"{}", 422, "invalid_input"),
        ({"colour": 1}, 422, "invalid_input"),
        ({"devices": ["nobody"]}, 404, "not_found"),
        ({"constraints": ["fast please"]}, 422, "constraint_syntax"),
        ({"constraints": ["joy <= 1"]}, 422, "metric_unavailable"),
        ({"objective": "minimize joy"}, 422, "metric_unavailable"),
        ({"policy": "oracle"}, 422, "invalid_input"),
        ({"choices": {"fan": [1]}}, 422, "unknown_knob"),
        ({"choices": {"batch_size": [3]}}, 422, "out_of_range"),
        ({"terms": {"trials": 0}}, 422, "invalid_input"),
        ({"terms": {"window_s": "NaN"}}, 422, "invalid_input"),
        ({"protocol": 99}, 426, "protocol"),
    ],
)
def test_an_invalid_study_is_refused_completely(
    client: TestClient, body: bytes | dict[str, Any], status: int, code: str
) -> None:
    send(client, "PUT", "/v1/devices/sim", Registration(device=device()))
    if isinstance(body, dict):
        body = json.dumps({"devices": ["sim"], "policy": "scripted", **body}).encode()
    answer = client.post("/v1/studies", content=body)
    assert problem(answer) == (status, code)
    assert client.get("/v1/studies").json() == []


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("PUT", "/v1/devices/sim", "board"),
        ("PUT", "/v1/devices/sim", "knobs"),
        ("POST", "/v1/devices/sim/next", "setting"),
        ("POST", "/v1/trials/report", "throttled"),
        ("POST", "/v1/trials/report", "device"),
        ("POST", "/v1/holds/report", "device"),
        ("POST", "/v1/studies", "canary"),
    ],
)
def test_half_a_character_is_refused_wherever_it_comes(
    client: TestClient, study: StudyView, method: str, path: str, field: str
) -> None:
    whole = {"name": "café 🚀 \u00e9"}
    body = {"agent": "host", **whole, "inner": [{field: ["fine", "\ud83d"]}]}
    answer = client.request(method, path, content=json.dumps(body))
    assert problem(answer) == (422, "invalid_input")
    assert "is not valid Unicode" in answer.json()["message"]
    assert client.get("/v1/devices").is_success
    assert client.get(f"/v1/studies/{study.id}/trials").json() == []


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/history?since=2026-01-01", "since"),
        ("/v1/history?until=2026-01-01T00:00:00", "until"),
        ("/v1/events/stream?after=9223372036854775808", "after"),
    ],
)
def test_a_question_that_means_nothing_is_refused_by_name(
    client: TestClient, path: str, named: str
) -> None:
    answer = client.get(path)
    assert problem(answer) == (422, "invalid_input")
    assert named in answer.json()["message"]


def test_energy_without_a_meter_is_refused_with_the_ways_out(client: TestClient) -> None:
    blind = device(
        metrics=(Metric("latency_p99_ms"), Metric("cpu_time_ms")),
        cannot={"energy_j": "this machine has no energy meter"},
    )
    send(client, "PUT", "/v1/devices/sim", Registration(device=blind))
    named = DRAFT.model_copy(update={"objective": "energy_j"})
    answer = send(client, "POST", "/v1/studies", named)
    assert problem(answer) == (422, "metric_unavailable")
    body = answer.json()
    assert "no energy meter" in body["message"]
    assert "cpu_time_ms" in body["hint"]
    chosen = send(client, "POST", "/v1/studies", DRAFT.model_copy(update={"constraints": None}))
    assert chosen.json()["objective"] == "minimize cpu_time_ms"
    assert chosen.json()["constraints"] == ["latency_p99_ms <= 1.2x baseline"]


def test_an_unknown_metric_is_refused_by_name_unless_it_is_declared(client: TestClient) -> None:
    frames = Metric("frames", quantity=Quantity("frames/s", Better.MORE))
    body = Registration(device=device(metrics=(frames,))).model_dump(mode="json")
    declared = body["device"]["metrics"][0].pop("quantity")
    answer = client.put("/v1/devices/sim", json=body)
    assert problem(answer) == (422, "invalid_input")
    assert "the metric frames has no declared quantity" in answer.json()["message"]
    body["device"]["metrics"][0]["quantity"] = declared
    assert client.put("/v1/devices/sim", json=body).status_code == 200
    draft = DRAFT.model_copy(update={"objective": "frames", "constraints": ()})
    study = send(client, "POST", "/v1/studies", draft).json()
    assert study["objective"] == "maximize frames"
    assert study["quantities"]["frames"] == declared


def test_an_estimate_is_tuned_on_only_with_the_operators_permission(client: TestClient) -> None:
    guessed = device(metrics=(Metric("energy_j", Origin.ESTIMATED), Metric("latency_p99_ms")))
    send(client, "PUT", "/v1/devices/sim", Registration(device=guessed))
    assert problem(send(client, "POST", "/v1/studies", DRAFT)) == (422, "metric_unavailable")
    terms = replace(DRAFT.terms, allow_estimated=True)
    allowed = send(client, "POST", "/v1/studies", DRAFT.model_copy(update={"terms": terms}))
    assert allowed.status_code == 201


def test_a_device_has_one_active_study(client: TestClient, study: StudyView) -> None:
    assert problem(send(client, "POST", "/v1/studies", DRAFT)) == (409, "device_busy")
    client.post(f"/v1/studies/{study.id}/stop", json={})
    assert send(client, "POST", "/v1/studies", DRAFT).status_code == 201


def test_infinite_bounds_travel_both_ways(client: TestClient, study: StudyView) -> None:
    order = poll(client)
    assert isinstance(order, Assignment)
    tail = {"latency_p99_ms": Estimate(90.0, 1.0, 100, 80.0, math.inf)}
    report = report_of(
        order, Outcome(state=TrialState.INCONCLUSIVE, measurement=window(extra=tail))
    )
    answer = send(client, "POST", "/v1/trials/report", report)
    assert Receipt.model_validate_json(answer.content).result == "closed"
    rows = TypeAdapter(list[HistoryRow]).validate_json(client.get("/v1/history").content)
    assert rows[0].metrics["latency_p99_ms"].high == math.inf
    final = StudyReport.model_validate_json(client.get(f"/v1/studies/{study.id}/report").content)
    assert final.study.trials == {"inconclusive": 1}


@pytest.mark.parametrize(
    ("find", "put", "code"),
    [
        ('"mean":10.0', '"mean":"NaN"', "invalid_input"),
        ('"mean":10.0', '"mean":-3.0', "measurement"),
        ('"seconds":10.0', '"seconds":0.0', "invalid_input"),
        ('"state":"completed"', '"state":"splendid"', "invalid_input"),
        ('"state":"completed"', '"state":"running"', "illegal_transition"),
        ('"token":', '"tocken":', "invalid_input"),
    ],
)
def test_an_impossible_report_is_refused_and_closes_nothing(
    client: TestClient, study: StudyView, find: str, put: str, code: str
) -> None:
    order = poll(client)
    assert isinstance(order, Assignment)
    good = report_of(
        order, Outcome(state=TrialState.COMPLETED, measurement=window())
    ).model_dump_json()
    assert find in good
    bad = good.replace(find, put, 1).replace('"low":9.8', '"low":"-Infinity","x":9.8')
    answer = client.post("/v1/trials/report", content=bad)
    assert 400 <= answer.status_code < 500
    assert problem(answer)[1] == code
    states = [t["state"] for t in client.get(f"/v1/studies/{study.id}/trials").json()]
    assert states == ["running"]


def test_another_protocol_gets_the_advice_to_upgrade(client: TestClient) -> None:
    body = Registration(device=device(), protocol=2)
    assert problem(send(client, "PUT", "/v1/devices/sim", body)) == (426, "protocol")


def test_a_message_of_another_protocol_gets_it_whatever_its_fields_are(client: TestClient) -> None:
    paths: dict[str, dict[str, Any]] = client.get("/v1/openapi.json").json()["paths"]
    bodied = [(m, p) for p, own in paths.items() for m in own if "requestBody" in own[m]]
    assert len(bodied) > 20
    for method, path in bodied:
        content = b'{"protocol": 2, "fields of 2": [1]}'
        answer = client.request(method, re.sub("{.*?}", "1", path), content=content)
        assert problem(answer) == (426, "protocol"), path


def test_fields_of_a_newer_peer_are_ignored(client: TestClient) -> None:
    body = Registration(device=device()).model_dump_json().replace("{", '{"colour":"red",', 1)
    assert client.put("/v1/devices/sim", content=body).status_code == 200


def test_the_beginning_of_an_id_names_a_study_but_not_to_delete_it(
    client: TestClient, study: StudyView
) -> None:
    short = f"/v1/studies/{study.id[:4]}"
    assert client.get(short).json()["id"] == study.id
    assert client.get("/v1/history", params={"study": study.id[:4]}).status_code == 200
    assert client.post(f"{short}/stop", json={}).json()["phase"] == "stopped"
    assert problem(client.delete(short)) == (404, "not_found")
    assert client.delete(f"/v1/studies/{study.id}").status_code == 204


def test_an_operator_pauses_resumes_stops_and_deletes(client: TestClient, study: StudyView) -> None:
    path = f"/v1/studies/{study.id}"
    order = poll(client)
    assert isinstance(order, Assignment)
    assert client.post(f"{path}/pause", json={"who": "eve"}).json()["phase"] == "paused"
    lost = client.post(
        "/v1/trials/renew", json={"device": "sim", "token": order.token, "nonce": order.nonce}
    )
    assert lost.status_code == 404
    assert [t["state"] for t in client.get(f"{path}/trials").json()] == ["aborted"]
    assert client.post(f"{path}/resume", json={}).json()["phase"] == "baseline"
    assert problem(client.delete(path)) == (409, "conflict")
    assert client.post(f"{path}/stop", json={}).json()["phase"] == "stopped"
    assert problem(client.post(f"{path}/resume", json={})) == (409, "illegal_transition")
    late = client.put(f"{path}/constraints", json={"constraints": ["latency_p99_ms <= 80"]})
    assert problem(late) == (409, "illegal_transition")
    revisions = client.get(f"{path}/revisions").json()
    assert [r["phase"] for r in revisions] == ["baseline", "paused", "baseline", "stopped"]
    assert revisions[1]["who"] == "admin"
    assert client.delete(path).status_code == 204
    assert problem(client.get(path)) == (404, "not_found")


def test_health_answers_while_every_worker_thread_is_stuck(operations: Operations) -> None:
    gate = threading.Event()

    async def play() -> int:
        threads = to_thread.current_default_thread_limiter()
        threads.total_tokens = 1
        stuck = asyncio.create_task(to_thread.run_sync(gate.wait, 30.0))
        while threads.available_tokens:
            await asyncio.sleep(0.01)
        app = create_app(operations, TOKEN, frozenset({"testserver"}), "0")
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
            answer = await client.get("/v1/health")
        assert not gate.is_set()
        gate.set()
        await stuck
        return answer.status_code

    opened = threading.Timer(20.0, gate.set)  # the waiting request gets a thread, and fails
    opened.start()
    assert asyncio.run(play()) == 200
    opened.cancel()


def test_waiting_callers_are_answered_when_the_server_ends(operations: Operations) -> None:
    ends = threading.Event()
    app = create_app(operations, TOKEN, frozenset({"testserver"}), "0", ends.is_set)
    with TestClient(app, headers=HEADERS) as client:
        send(client, "PUT", "/v1/devices/sim", Registration(device=device()))
        held = Poll(agent="host", applied=applied(), wait_s=30.0)
        before = time.monotonic()
        ending = threading.Timer(0.5, ends.set)
        ending.start()
        answer = send(client, "POST", "/v1/devices/sim/next", held)
        ending.join()
    assert ORDER.validate_json(answer.content).kind == "release"
    assert 0.5 <= time.monotonic() - before < 20.0, "it waited, but not to the end"


def test_the_long_poll_returns_at_once_when_there_is_something_to_do(
    client: TestClient, study: StudyView
) -> None:
    body = Poll(agent="host", applied=applied(), wait_s=30.0)
    answer = send(client, "POST", "/v1/devices/sim/next", body)
    assert ORDER.validate_json(answer.content).kind == "trial"


def test_all_devices_are_stopped_and_lifted_over_http(client: TestClient, study: StudyView) -> None:
    assert isinstance(poll(client), Assignment)
    stopped = send(client, "POST", "/v1/stop", Change(who="ann", why="smoke")).json()
    assert (stopped["in_force"], stopped["who"], stopped["why"]) == (True, "admin", "smoke")
    assert isinstance(poll(client), Release)
    assert client.get("/v1/stop").json()["devices"][0]["state"] == "original"
    ready = client.get("/v1/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "stopped": True})
    assert client.get(f"/v1/studies/{study.id}").json()["stopped"] is True
    lifted = client.delete("/v1/stop", params={"who": "bob", "why": "false alarm"})
    assert lifted.json()["in_force"] is False
    assert client.get("/v1/ready").json()["stopped"] is False
    assert isinstance(poll(client), Assignment)


def test_an_agent_that_waits_at_its_hold_hears_of_a_stop_at_once(
    client: TestClient, operations: Operations
) -> None:
    send(client, "PUT", "/v1/devices/sim", Registration(device=device()))
    held = at_hold(Phase.HOLDING, plan=Plan.single(setting(600)))
    operations.loop.store.studies.add(held, "ann", "created")
    level = applied(level=Level.HOLD, at=setting(600))
    body = Poll(agent="host", applied=level, holding=held.id, revision=1, wait_s=60.0)
    stopping = threading.Timer(0.2, operations.stop_all, [Change(who="ann")])
    began = time.monotonic()
    stopping.start()
    order = ORDER.validate_json(send(client, "POST", "/v1/devices/sim/next", body).content)
    stopping.join()
    assert isinstance(order, Release)
    assert 0.2 <= time.monotonic() - began < 40.0, "it waited, but not to the end"


def test_a_device_shows_its_last_contact_and_can_be_forgotten(client: TestClient) -> None:
    send(client, "PUT", "/v1/devices/sim", Registration(device=device()))
    (view,) = client.get("/v1/devices").json()
    assert (view["online"], view["last_seen"]) == (True, "2026-01-01T12:00:00Z")
    assert problem(client.delete("/v1/devices/sim")) == (409, "conflict")
    assert problem(client.delete("/v1/devices/nobody")) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/events?lsat=1", "'lsat' is not known here"),
        ("/v1/events?last=1&last=2", "'last' is given twice"),
        ("/v1/studies?phase=holding", "'phase' is not known here"),
        ("/v1/history?device=a&device=b", "'device' is given twice"),
    ],
)
def test_each_query_parameter_is_applied_or_refused_by_name(
    client: TestClient, path: str, named: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 422 and named in answer.json()["message"]
    assert client.get("/v1/events?last=1&device=a").status_code == 200


@pytest.mark.parametrize(("coding", "status"), [("gzip", 422), ("zstd", 422), ("Identity", 200)])
def test_a_packed_body_is_refused_by_name(client: TestClient, coding: str, status: int) -> None:
    answer = client.post("/v1/stop", json={"why": "x"}, headers={"Content-Encoding": coding})
    assert answer.status_code == status
    assert status == 200 or coding in answer.json()["message"]


def test_a_page_with_a_query_out_of_bounds_is_a_page() -> None:
    with Site(worlds.operations()).signed_in() as browser:
        answer = browser.get("/studies?page=x")
        assert answer.status_code == 422 and answer.text.startswith("<!doctype html>")
