"""The operator's API over HTTP: the same answers as in the tuner's process, and our errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient

from db.history import HistoryQuestion
from tests.builders import START
from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tuner.cli.output import plain
from tuner.client import Client, read_token
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
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.verbs.table import Verbs
from tuner.wire import Change, ConstraintChange, Decision, StudyDraft, StudyView, TokenDraft

TOKEN = "secret"
URL = "http://tuner"


@pytest.fixture
def local() -> Operations:
    return worlds.held()[0]


def through(app: TestClient) -> httpx2.MockTransport:
    """Return a transport that passes requests to the application in this process."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        path = request.url.raw_path.decode()
        answer = app.request(
            request.method, path, content=request.content, headers=dict(request.headers)
        )
        return httpx2.Response(answer.status_code, content=answer.content)

    return httpx2.MockTransport(handle)


@pytest.fixture
def app(local: Operations) -> Iterator[TestClient]:
    with TestClient(create_app(local, TOKEN, frozenset({"tuner"}), "0")) as client:
        yield client


@pytest.fixture
def remote(app: TestClient) -> Iterator[Client]:
    with Client(URL, TOKEN, through(app)) as api:
        yield api


QUESTIONS: list[Callable[[Verbs[StudyView], str], object]] = [
    lambda api, _: list(api.studies()),
    lambda api, study: api.study(study),
    lambda api, study: list(api.revisions(study)),
    lambda api, study: list(api.trials(study)),
    lambda api, study: api.best(study),
    lambda api, study: list(api.pareto(study)),
    lambda api, study: api.report(study),
    lambda api, _: list(api.devices()),
    lambda api, study: list(api.events(study, last=3)),
    lambda api, study: list(api.history(HistoryQuestion(study=study, verdict=Verdict.FEASIBLE))),
    lambda api, _: list(api.history(HistoryQuestion(since=START, state=TrialState.FAILED))),
    lambda api, study: list(api.history(HistoryQuestion(study=study), 3)),
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_question_has_the_same_answer_here_and_over_http(
    ask: Callable[[Verbs[StudyView], str], object], local: Operations, remote: Client
) -> None:
    study = local.studies()[0].id
    assert plain(ask(remote, study)) == plain(ask(local, study))


def test_changes_reach_the_tuner(local: Operations, remote: Client) -> None:
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
    assert "by admin" in local.events(last=1)[0].text
    draft = StudyDraft(devices=("sim",), constraints=(), policy="scripted")
    assert remote.create(draft).id == local.studies()[0].id


def test_a_decision_reaches_the_tuner_as_it_was_made(local: Operations, remote: Client) -> None:
    worlds.retire(local)
    name = worlds.proposed(local)
    with raised(Conflict, "revision 1"):
        remote.approve(name, Decision(revision=1))
    seen = remote.study(name).revision
    assert remote.approve(name, Decision(revision=seen, why="cheap")).phase == "holding"
    assert local.revisions(name)[-1].who == "admin"
    worlds.retire(local)
    assert remote.reject(worlds.proposed(local), Decision()).phase == "stopped"


def test_tokens_are_made_listed_and_revoked_at_the_tuner(
    local: Operations, remote: Client, app: TestClient
) -> None:
    made = remote.access.create(TokenDraft(name="ann", role=AccessRole.OPERATOR))
    with Client(URL, made.token, through(app)) as api:
        assert plain(api.studies()) == plain(local.studies())
        with pytest.raises(Forbidden):
            api.access.tokens()
        remote.access.revoke("ann")
        with raised(Unauthorised, "ann"):
            api.studies()
    assert list(remote.access.tokens()) == list(local.access.tokens())
    with raised(NotFound, "agent@b"):
        remote.access.revoke("agent@b")


@pytest.mark.parametrize(
    ("ask", "kind", "named"),
    [
        (lambda api, _: api.study("no such?"), NotFound, "no such?"),
        (lambda api, _: api.study("a/b"), InvalidInput, "Not Found"),
        (lambda api, study: api.delete(study, Change()), Conflict, "active"),
        (
            lambda api, study: api.set_constraints(study, ConstraintChange(constraints=("slow",))),
            ConstraintSyntax,
            "slow",
        ),
        (
            lambda api, study: api.pause(study, Change(protocol=99)),
            ProtocolMismatch,
            "99",
        ),
    ],
)
def test_a_refusal_returns_as_its_own_error(
    ask: Callable[[Verbs[StudyView], str], object],
    kind: type[TuningError],
    named: str,
    local: Operations,
    remote: Client,
) -> None:
    with pytest.raises(kind) as caught:
        ask(remote, local.studies()[0].id)
    assert type(caught.value) is kind
    assert named in caught.value.message


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_the_right_token_every_request_is_refused(app: TestClient, token: str) -> None:
    with Client(URL, token, through(app)) as api, pytest.raises(Unauthorised):
        api.studies()


def refusing(_: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("Connection refused")


@pytest.mark.parametrize(
    ("handle", "message"),
    [
        (refusing, "does not answer: Connection refused"),
        (lambda _: httpx2.Response(404, html="<h1>none</h1>"), "answered 404"),
        (lambda _: httpx2.Response(200, html="<h1>hello</h1>"), "a response that is not a tuner's"),
    ],
)
def test_a_server_that_is_not_a_tuner_is_reported(
    handle: Callable[[httpx2.Request], httpx2.Response], message: str
) -> None:
    with (
        Client(URL, TOKEN, httpx2.MockTransport(handle)) as api,
        pytest.raises(LinkError, match=message),
    ):
        api.studies()


def test_a_read_is_repeated_after_an_idle_connection_broke_but_a_change_is_not() -> None:
    methods: list[str] = []

    def server(request: httpx2.Request) -> httpx2.Response:
        methods.append(request.method)
        if len(methods) % 2:
            raise httpx2.ReadError("[Errno 104] Connection reset by peer")
        return httpx2.Response(200, json=[])

    with Client(URL, TOKEN, httpx2.MockTransport(server)) as api:
        assert not api.studies()
        assert methods == ["GET", "GET"]
        with pytest.raises(LinkError, match="Connection reset by peer"):
            api.pause("s1", Change())
    assert methods == ["GET", "GET", "POST"]


def test_a_tuner_that_does_not_answer_is_not_ready() -> None:
    with Client(URL, TOKEN, httpx2.MockTransport(refusing)) as api:
        assert not api.ready()


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match=str(file)):
        read_token(file)
    file.write_text("  abc\n")
    assert read_token(file) == "abc"
    assert read_token(None) == ""
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_token(file)


def test_verbs_of_a_study_leave_its_view_unchanged(local: Operations, remote: Client) -> None:
    (study,) = remote.studies()
    paused = study.pause("lunch")
    assert (study.phase, paused.phase) == ("holding", "paused")
    assert paused.resume().phase == "holding"
    assert study.revisions()[-2].why == "lunch"
    assert study.constrain("latency_p99_ms <= 130", why="SLO").limits[0].value == 130.0
    assert [t.number for t in study.tried()] == [t.number for t in local.trials(study.id)]
    assert study.history(state="completed")[0].study == study.id
    assert study.report().saving == local.report(study.id).saving
    assert study.explain().study == study.id
    assert study.stop().wait().phase == "stopped"
    study.refreshed().delete()
    assert remote.studies() == []


def test_a_wishs_open_values_follow_from_the_devices_metrics(
    local: Operations, remote: Client
) -> None:
    worlds.retire(local)
    made = remote.tune("sim", policy="scripted")
    assert made.objective == "minimize energy_j"
    assert made.constraints == ("latency_p99_ms <= 1.2x baseline",)
    made.stop()
    free = remote.tune("sim", policy="scripted", constraints=(), objective="latency_p99_ms")
    assert free.constraints == ()
    with raised(NotFound, "nobody"):
        remote.tune("nobody")


def test_a_plot_shows_the_windows_the_limit_the_baseline_and_the_best(remote: Client) -> None:
    pytest.importorskip("matplotlib")
    (axes,) = remote.studies()[0].plot().axes
    assert axes.get_legend() is not None
    labels = {text.get_text().partition(" (")[0] for text in axes.legend().get_texts()}
    assert {"limit 120", "feasible", "baseline", "best"} <= labels
    assert axes.get_xlabel().startswith("latency_p99_ms")
    assert axes.get_ylabel().startswith("energy_j")


def test_a_proposal_is_approved_as_it_was_seen(local: Operations, remote: Client) -> None:
    worlds.retire(local)
    seen = remote.study(worlds.proposed(local))
    assert seen.approve("cheap").phase == "holding"
    worlds.retire(local)
    stale = remote.study(worlds.proposed(local))
    stale.constrain("latency_p99_ms <= 101")
    with pytest.raises(Conflict):
        stale.approve()
    worlds.retire(local)
    assert remote.study(worlds.proposed(local)).reject().phase == "stopped"


@pytest.mark.parametrize("text", ["a\nb", "t\u00e4ken", "a b"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "token").write_text(text)
    with raised(ConfigError, "token", "not one word") as refused:
        read_token(tmp_path / "token")
    assert text not in str(refused.value)
    with raised(ConfigError, "token", "not one word") as refused:
        Client(URL, text)
    assert text not in str(refused.value)


def test_no_error_shows_the_password_of_a_url() -> None:
    secret = "http://ann:s3cret@tuner.test"
    for transport in (refusing, lambda _: httpx2.Response(200), lambda _: httpx2.Response(500)):
        with Client(secret, TOKEN, httpx2.MockTransport(transport)) as api:
            with raised(LinkError, "@tuner.test") as refused:
                api.studies()
            assert "s3cret" not in str(refused.value)
    with raised(ConfigError, "not a URL") as malformed:
        Client(f"{secret}:x", TOKEN)
    assert "s3cret" not in str(malformed.value)
