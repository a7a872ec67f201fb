"""The desk over HTTP: the same answers as in the tuner's own process, and errors of the family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from db.history import HistoryQuestion
from tests.builders import START
from tests.unit.tuner.cli import worlds
from tuner.cli.desk import OperatorApi
from tuner.cli.remote import HttpOperatorApi, read_token
from tuner.core import (
    AccessRole,
    ConfigError,
    Conflict,
    ConstraintSyntax,
    Forbidden,
    InvalidInput,
    LinkError,
    NotFound,
    ProtocolMismatch,
    TrialState,
    TuningError,
    Unauthorised,
    Verdict,
)
from tuner.service.api import create_app
from tuner.service.operations import Operations
from tuner.wire import Change, ConstraintChange, StudyDraft, TokenDraft

TOKEN = "secret"
URL = "http://tuner"


@pytest.fixture
def local() -> Operations:
    return worlds.held()[0]


def through(app: TestClient) -> httpx.MockTransport:
    """Return a transport that hands requests to the application in this process."""

    def handle(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        answer = app.request(
            request.method, path, content=request.content, headers=dict(request.headers)
        )
        return httpx.Response(answer.status_code, content=answer.content)

    return httpx.MockTransport(handle)


@pytest.fixture
def app(local: Operations) -> Iterator[TestClient]:
    with TestClient(create_app(local, TOKEN, frozenset({"tuner"}), "0")) as client:
        yield client


@pytest.fixture
def remote(app: TestClient) -> Iterator[HttpOperatorApi]:
    with HttpOperatorApi(URL, TOKEN, through(app)) as desk:
        yield desk


QUESTIONS: list[Callable[[OperatorApi, str], object]] = [
    lambda desk, _: list(desk.studies()),
    lambda desk, study: desk.study(study),
    lambda desk, study: list(desk.revisions(study)),
    lambda desk, study: list(desk.trials(study)),
    lambda desk, study: desk.best(study),
    lambda desk, study: list(desk.pareto(study)),
    lambda desk, study: desk.report(study),
    lambda desk, _: list(desk.devices()),
    lambda desk, study: list(desk.events(study, last=3)),
    lambda desk, study: list(desk.history(HistoryQuestion(study=study, verdict=Verdict.FEASIBLE))),
    lambda desk, _: list(desk.history(HistoryQuestion(since=START, state=TrialState.FAILED))),
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_question_has_one_answer_here_and_there(
    ask: Callable[[OperatorApi, str], object], local: Operations, remote: HttpOperatorApi
) -> None:
    study = local.studies()[0].id
    assert ask(remote, study) == ask(local, study)


def test_changes_reach_the_tuner(local: Operations, remote: HttpOperatorApi) -> None:
    study = local.studies()[0].id
    assert remote.ready()
    assert remote.pause(study, Change(who="ann", why="lunch")).phase == "paused"
    assert local.revisions(study)[-1].why == "lunch"
    assert remote.resume(study, Change()).phase == "holding"
    limit = ConstraintChange(constraints=("latency_p99_ms <= 130",))
    assert remote.set_constraints(study, limit).constraints == ("latency_p99_ms <= 130.0",)
    assert remote.stop(study, Change()).phase == "stopped"
    remote.delete(study, Change(who="ann"))
    assert local.studies() == []
    assert "ann" in local.events(last=1)[0].text
    draft = StudyDraft(devices=("sim",), constraints=(), policy="scripted")
    assert remote.create(draft).id == local.studies()[0].id


def test_tokens_are_made_listed_and_revoked_at_the_tuner(
    local: Operations, remote: HttpOperatorApi, app: TestClient
) -> None:
    made = remote.access.create(TokenDraft(name="ann", role=AccessRole.OPERATOR))
    with HttpOperatorApi(URL, made.token, through(app)) as desk:
        assert desk.studies() == local.studies()
        with pytest.raises(Forbidden):
            desk.access.tokens()
        remote.access.revoke("ann")
        with pytest.raises(Unauthorised, match="ann is revoked"):
            desk.studies()
    assert list(remote.access.tokens()) == list(local.access.tokens())
    with pytest.raises(NotFound, match="agent@b"):
        remote.access.revoke("agent@b")


@pytest.mark.parametrize(
    ("ask", "kind", "named"),
    [
        (lambda desk, _: desk.study("no such?"), NotFound, "no such?"),
        (lambda desk, _: desk.study("a/b"), InvalidInput, "Not Found"),
        (lambda desk, study: desk.delete(study, Change()), Conflict, "active"),
        (
            lambda desk, study: desk.set_constraints(
                study, ConstraintChange(constraints=("slow",))
            ),
            ConstraintSyntax,
            "slow",
        ),
        (
            lambda desk, study: desk.pause(study, Change(protocol=99)),
            ProtocolMismatch,
            "99",
        ),
    ],
)
def test_a_refusal_comes_back_as_what_it_is(
    ask: Callable[[OperatorApi, str], object],
    kind: type[TuningError],
    named: str,
    local: Operations,
    remote: HttpOperatorApi,
) -> None:
    with pytest.raises(kind) as refused:
        ask(remote, local.studies()[0].id)
    assert type(refused.value) is kind
    assert named in refused.value.message


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_the_right_token_nobody_gets_in(app: TestClient, token: str) -> None:
    with HttpOperatorApi(URL, token, through(app)) as desk, pytest.raises(Unauthorised):
        desk.studies()


def refusing(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("Connection refused")


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        (refusing, "does not answer: Connection refused"),
        (lambda _: httpx.Response(404, html="<h1>none</h1>"), "answered 404"),
        (lambda _: httpx.Response(200, html="<h1>hello</h1>"), "something else than a tuner"),
    ],
)
def test_what_is_no_tuner_is_told(
    handle: Callable[[httpx.Request], httpx.Response], said: str
) -> None:
    with (
        HttpOperatorApi(URL, TOKEN, httpx.MockTransport(handle)) as desk,
        pytest.raises(LinkError, match=said),
    ):
        desk.studies()


def test_a_question_is_asked_again_where_an_idle_connection_broke_a_change_is_not() -> None:
    asked: list[str] = []

    def server(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        if len(asked) % 2:
            raise httpx.ReadError("[Errno 104] Connection reset by peer")
        return httpx.Response(200, json=[])

    with HttpOperatorApi(URL, TOKEN, httpx.MockTransport(server)) as desk:
        assert not desk.studies()
        assert asked == ["GET", "GET"]
        with pytest.raises(LinkError, match="Connection reset by peer"):
            desk.pause("s1", Change())
    assert asked == ["GET", "GET", "POST"]


def test_a_tuner_that_does_not_answer_is_not_ready() -> None:
    with HttpOperatorApi(URL, TOKEN, httpx.MockTransport(refusing)) as desk:
        assert not desk.ready()


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match=str(file)):
        read_token(file)
    file.write_text("  abc\n")
    assert read_token(file) == "abc"
    assert read_token(None) == ""
