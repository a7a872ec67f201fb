"""Permissions at the tuner: of the admin, operators, agents, and an agent to be enrolled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from argon2 import PasswordHasher
from starlette.testclient import TestClient

from db import Store
from db.sql.tokens import Tokens
from tests.builders import Time, applied, completed, device, policies, setting
from tests.errors import raised
from tests.stores import memory_store
from tests.unit.tuner.cli import worlds
from tuner.core import AccessRole, Caller, Conflict, RateLimited, StoreError, digest_of
from tuner.service import access
from tuner.service.access import ENROL_FOR, hashed, matches
from tuner.service.fleet import FleetOverview
from tuner.service.http import gate
from tuner.service.http.api import create_app
from tuner.service.http.feed import StreamPlaces
from tuner.service.http.gate import STORED_AT_ONCE
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import Metrics
from tuner.service.operations import Operations
from tuner.service.summaries import Summaries
from tuner.study.loop import Loop
from tuner.verbs.row import verbs_of
from tuner.verbs.table import TokenVerbs, Verbs
from tuner.wire import (
    ORDER,
    TOKEN_DAYS,
    Assignment,
    Change,
    ConstraintChange,
    Decision,
    Enrolment,
    HoldReport,
    Message,
    Poll,
    Registration,
    Renewal,
    Reverted,
    StepReport,
    TokenDraft,
    TrialReport,
)

ADMIN = "admin's"
FOR_AGENTS = {
    ("PUT", "/v1/devices/{device}"),
    ("POST", "/v1/devices/{device}/next"),
    ("POST", "/v1/devices/{device}/budget"),
    ("POST", "/v1/trials/renew"),
    ("POST", "/v1/trials/report"),
    ("POST", "/v1/trials/step"),
    ("POST", "/v1/holds/report"),
    ("POST", "/v1/reverts"),
}
OPEN = {("GET", "/v1/health"), ("GET", "/v1/ready")}
ENROLLING = {("POST", "/v1/enrol")}
FOR_GRID = {("POST", "/v1/events/grid")}
"""Routes for a grid's token and for operators."""
FOR_ADMIN = {(v.method, v.path) for v in verbs_of(TokenVerbs)}


@dataclass
class Tuner:
    """A tuner over HTTP, called with any token."""

    time: Time = field(default_factory=Time)
    store: Store = field(default_factory=memory_store)

    def __post_init__(self) -> None:
        self.verbs = Operations(Loop(self.store, policies, self.time.now))
        counts = Counts()
        metrics = Metrics(FleetOverview(self.verbs, Summaries(self.verbs)), counts, "0")
        app = create_app(
            self.verbs, ADMIN, frozenset({"testserver"}), "0", metrics=metrics, counts=counts
        )
        self.client = TestClient(app)

    def ask(self, token: str, method: str, path: str, body: Message | None = None) -> Any:  # noqa: ANN401
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = None if body is None else body.model_dump_json()
        return self.client.request(method, path, content=content, headers=headers)

    def code(self, token: str, method: str, path: str, body: Message | None = None) -> str:
        """Return the code of a refusal; empty after success."""
        answer = self.ask(token, method, path, body)
        return "" if answer.is_success else str(answer.json()["code"])

    def create(self, role: str, name: str = "") -> str:
        answer = self.ask(ADMIN, "POST", "/v1/tokens", Draft(name=name, role=role))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def enrol(self, given: str, name: str, secret: str = "") -> Any:  # noqa: ANN401
        digest = digest_of(secret or name)
        return self.ask(given, "POST", "/v1/enrol", Enrolment(agent=name, digest=digest))

    def agent(self, name: str) -> str:
        """Return the token of a newly enrolled agent."""
        assert self.enrol(ADMIN, name).status_code == 200
        return name

    def register(self, token: str, name: str) -> str:
        body = Registration(device=device(name, agent="whatever it says"))
        return self.code(token, "PUT", f"/v1/devices/{name}", body)

    def assigned(self, token: str, name: str) -> Assignment:
        body = Poll(agent=f"{token}/1", applied=applied(name))
        order = self.ask(token, "POST", f"/v1/devices/{name}/next", body)
        assignment = ORDER.validate_json(order.content)
        assert isinstance(assignment, Assignment)
        return assignment

    def routes(self) -> set[tuple[str, str]]:
        paths = self.ask(ADMIN, "GET", "/v1/openapi.json").json()["paths"]
        return {(method.upper(), path) for path, methods in paths.items() for method in methods}


ASKING = {("POST", "/v1/studies/{study}/constraints/preview"), ("POST", "/v1/fleet/diff")}
"""Queries with a body: they change nothing."""


def poll(name: str) -> Poll:
    return Poll(agent="a/1", applied=applied(name))


class Draft(Message):
    name: str
    role: str


def study(*devices: str) -> Message:
    class Asked(Message):
        devices: tuple[str, ...]
        policy: str = "scripted"
        constraints: tuple[str, ...] = ()

    return Asked(devices=devices)


@pytest.fixture
def tuner() -> Iterator[Tuner]:
    made = Tuner()
    with made.client:
        yield made


def refused(tuner: Tuner, token: str) -> set[tuple[str, str]]:
    """Return the routes that refuse a token; the bodies are invalid, so that nothing is done."""
    routes = set()
    for method, path in tuner.routes():
        address = f"{path}?after=never" if path.endswith("/stream") else path  # it would not end
        answer = tuner.ask(
            token, method, address, None if method == "GET" else Draft(name="", role="")
        )
        assert answer.status_code != 401, path
        if answer.status_code == 403:
            assert answer.json()["code"] == "forbidden"
            assert answer.json()["hint"], "a refusal says what to do instead"
            routes.add((method, path))
    return routes


def test_a_token_opens_the_routes_of_its_role_and_no_others(tuner: Tuner) -> None:
    everything = tuner.routes()
    studies = everything - OPEN - FOR_AGENTS - FOR_ADMIN - ENROLLING
    assert studies == {(v.method, v.path) for v in verbs_of(Verbs)} | {("GET", "/metrics")}
    assert {v.role for v in verbs_of(TokenVerbs)} == {AccessRole.ADMIN}
    agent, operator = tuner.agent("agent@a"), tuner.create("operator", "ann")
    assert refused(tuner, agent) == studies | FOR_ADMIN | ENROLLING
    assert refused(tuner, operator) == FOR_AGENTS | FOR_ADMIN | ENROLLING
    changes = {(method, path) for method, path in studies if method != "GET"} - ASKING - FOR_GRID
    operators = {(v.method, v.path) for v in verbs_of(Verbs) if v.role is AccessRole.OPERATOR}
    assert changes == operators, "what is no question is an operator's"
    viewer = tuner.create("viewer", "vera")
    assert refused(tuner, viewer) == FOR_AGENTS | FOR_ADMIN | ENROLLING | changes | FOR_GRID
    grid = tuner.create("grid", "utility")
    assert refused(tuner, grid) == everything - OPEN - FOR_GRID
    assert refused(tuner, tuner.create("enrol")) == studies | FOR_ADMIN | FOR_AGENTS
    assert refused(tuner, ADMIN) == set()
    assert refused(tuner, tuner.create("admin", "ada")) == set()


def test_an_operators_change_is_signed_by_the_token_despite_the_messages_author(
    tuner: Tuner,
) -> None:
    tuner.register(tuner.agent("a"), "one")
    ann = tuner.create("operator", "ann")
    made = tuner.ask(ann, "POST", "/v1/studies", study("one")).json()["id"]
    path = f"/v1/studies/{made}"
    tuner.ask(ann, "POST", f"{path}/pause", Change(who="bob"))
    tuner.ask(ann, "PUT", f"{path}/constraints", ConstraintChange(constraints=(), who="bob"))
    tuner.ask(ADMIN, "POST", f"{path}/resume", Change(who="bob"))
    revisions = tuner.ask(ann, "GET", f"{path}/revisions").json()
    assert [r["who"] for r in revisions] == ["ann", "ann", "admin"]
    assert tuner.ask(ann, "POST", "/v1/stop", Change(who="bob")).json()["who"] == "ann"
    tuner.ask(ann, "DELETE", "/v1/stop?who=bob")
    assert not any("by bob" in r["why"] for r in revisions)


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_a_proposals_decider_is_the_tokens_owner_and_no_viewer(tuner: Tuner, verb: str) -> None:
    tuner.verbs.loop.register(device("sim"))
    made = worlds.proposed(tuner.verbs)
    path = f"/v1/studies/{made}/{verb}"
    vera, ann = tuner.create("viewer", "vera"), tuner.create("operator", "ann@example.org")
    assert tuner.code(vera, "POST", path, Decision()) == "forbidden"
    assert tuner.verbs.study(made).phase == "proposed"
    assert tuner.code(ann, "POST", path, Decision(who="bob", why="so be it")) == ""
    last = tuner.ask(ann, "GET", f"/v1/studies/{made}/revisions").json()[-1]
    assert last["who"] == "ann@example.org"
    assert "ann@example.org: gpu.clock_mhz=600" in last["why"]
    entries = tuner.ask(ADMIN, "GET", "/v1/audit").json()
    assert [(e["who"], e["status"]) for e in entries if e["path"] == path] == [
        ("vera", 403),
        ("ann@example.org", 200),
    ]


@pytest.mark.promise(
    "an agent is compromised",
    "it can reach only its own devices and close only their trials",
)
def test_an_agent_can_do_nothing_to_the_devices_of_another(tuner: Tuner) -> None:
    ours, theirs = tuner.agent("agent@a"), tuner.agent("agent@b")
    assert tuner.register(ours, "a") == ""
    assert tuner.register(theirs, "b") == ""
    made = tuner.ask(ADMIN, "POST", "/v1/studies", study("a")).json()["id"]
    order = tuner.assigned(ours, "a")
    lease: dict[str, Any] = {"device": "a", "token": order.token, "nonce": order.nonce}
    report = TrialReport(
        study=made, trial=order.trial, attempt=order.attempt, outcome=completed(), **lease
    )
    ended = HoldReport(device="a", study=made, revision=1, setting=setting(), ended="so there")
    own = StepReport(
        device="a", study=made, key="0123456789", setting=setting(), outcome=report.outcome
    )
    before = tuner.store.devices.get("a")
    forged: list[tuple[str, str, Message]] = [
        ("PUT", "/v1/devices/a", Registration(device=device("a", driver="2"))),
        ("POST", "/v1/devices/a/next", Poll(agent="agent@a/1", applied=applied("a"))),
        ("POST", "/v1/trials/renew", Renewal(**lease)),
        ("POST", "/v1/trials/report", report),
        ("POST", "/v1/holds/report", ended),
        ("POST", "/v1/reverts", Reverted(device="a", why="so there")),
        ("POST", "/v1/trials/step", own),
        ("POST", "/v1/trials/report", report.model_copy(update={"device": "b"})),
        ("POST", "/v1/holds/report", ended.model_copy(update={"device": "b"})),
    ]
    codes = [tuner.code(theirs, *one) for one in forged]
    assert codes == ["forbidden"] * 7 + ["invalid_input"] * 2
    assert tuner.store.devices.get("a") == before
    assert not tuner.store.trials.list(made)[0].state.final
    assert tuner.store.trials.reports(made, order.trial) == ()
    assert tuner.code(ours, "POST", "/v1/trials/report", report) == ""
    assert tuner.store.trials.list(made)[0].state.final


def test_a_device_belongs_to_the_agent_that_registered_it_despite_its_own_claims(
    tuner: Tuner,
) -> None:
    ours, theirs = tuner.agent("agent@a"), tuner.agent("agent@b")
    tuner.register(ours, "gpu")
    assert tuner.store.devices.get("gpu").agent == "agent@a"
    refusal = tuner.ask(theirs, "PUT", "/v1/devices/gpu", Registration(device=device("gpu")))
    assert refusal.status_code == 403
    assert "belongs to the agent agent@a, not to agent@b" in refusal.json()["message"]
    assert "`name` in its agent.toml" in refusal.json()["hint"]


def test_an_enrolment_token_makes_one_agent_and_does_nothing_else(tuner: Tuner) -> None:
    once = tuner.create("enrol")
    assert tuner.enrol(once, "agent@a").json() == {"protocol": 1, "agent": "agent@a"}
    assert tuner.enrol(once, "agent@a").status_code == 200, "the answer got lost"
    again = tuner.enrol(once, "agent@b")
    assert (again.status_code, again.json()["code"]) == (401, "unauthorised")
    assert "already used" in again.json()["message"]
    assert tuner.register("agent@a", "gpu") == ""
    assert tuner.code("agent@b", "PUT", "/v1/devices/gpu") == "unauthorised"


def test_an_enrolment_token_expires(tuner: Tuner) -> None:
    once = tuner.create("enrol")
    tuner.time.step(ENROL_FOR - timedelta(seconds=1))
    other = tuner.create("enrol")
    tuner.time.step(timedelta(seconds=1))
    late = tuner.enrol(once, "agent@a")
    assert (late.status_code, late.json()["code"]) == (401, "unauthorised")
    assert "is expired" in late.json()["message"]
    assert tuner.enrol(other, "agent@a").status_code == 200


def test_an_enrolment_token_does_not_take_over_an_agent_until_that_is_revoked(tuner: Tuner) -> None:
    tuner.register(tuner.agent("agent@a"), "gpu")
    once = tuner.create("enrol")
    refusal = tuner.enrol(once, "agent@a", "reinstalled")
    assert (refusal.status_code, refusal.json()["code"]) == (409, "conflict")
    assert "`jouletune token revoke agent@a`" in refusal.json()["hint"]
    assert tuner.ask(ADMIN, "DELETE", "/v1/tokens/agent@a").status_code == 204
    assert tuner.register("agent@a", "gpu") == "unauthorised"
    assert tuner.enrol(once, "agent@a", "reinstalled").status_code == 200
    assert tuner.register("reinstalled", "gpu") == "", "its devices are its own again"
    assert tuner.register("agent@a", "gpu") == "unauthorised"


def test_the_admins_token_replaces_that_of_a_reinstalled_agent(tuner: Tuner) -> None:
    tuner.register(tuner.agent("agent@a"), "gpu")
    assert tuner.enrol(ADMIN, "agent@a", "reinstalled").status_code == 200
    assert tuner.register("reinstalled", "gpu") == ""
    assert tuner.register("agent@a", "gpu") == "unauthorised"


def test_the_admins_token_does_an_agents_work_too(tuner: Tuner) -> None:
    assert tuner.register(ADMIN, "gpu") == ""
    tuner.ask(ADMIN, "POST", "/v1/studies", study("gpu"))
    assert tuner.assigned(ADMIN, "gpu").trial == 1


def test_a_revoked_operator_is_refused_at_the_next_request(tuner: Tuner) -> None:
    ann = tuner.create("operator", "ann")
    assert tuner.code(ann, "GET", "/v1/studies") == ""
    tuner.ask(ADMIN, "DELETE", "/v1/tokens/ann")
    answer = tuner.ask(ann, "GET", "/v1/studies")
    assert answer.status_code == 401
    assert "ann is revoked" in answer.json()["message"]
    assert tuner.code(tuner.create("operator", "ann"), "GET", "/v1/studies") == ""


def test_tokens_are_listed_without_themselves_and_stored_as_digests(tuner: Tuner) -> None:
    secrets = [tuner.create("operator", "ann"), tuner.create("enrol"), tuner.create("enrol")]
    tuner.enrol(secrets[1], "agent@a")
    tuner.ask(ADMIN, "DELETE", "/v1/tokens/ann")
    listed = tuner.ask(ADMIN, "GET", "/v1/tokens")
    states = sorted((t["role"], t["state"]) for t in listed.json())
    assert states == [
        ("agent", "valid"),
        ("enrol", "used"),
        ("enrol", "valid"),
        ("operator", "revoked"),
    ]
    kept = repr(tuner.store.tokens.list()) + repr(tuner.store.events.list()) + listed.text
    assert not [secret for secret in [*secrets, ADMIN] if secret in kept]
    assert len(set(secrets)) == 3 and min(map(len, secrets)) >= 43


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 101])
def test_an_invalid_token_name_is_refused(tuner: Tuner, name: str) -> None:
    draft = Draft(name=name, role="operator")
    assert tuner.code(ADMIN, "POST", "/v1/tokens", draft) == "invalid_input"
    assert tuner.enrol(ADMIN, name).json()["code"] == "invalid_input"
    assert tuner.store.tokens.list() == ()


def test_no_token_creates_a_ready_agent(tuner: Tuner) -> None:
    assert tuner.code(ADMIN, "POST", "/v1/tokens", Draft(name="x", role="agent")) == "invalid_input"


def test_a_persons_token_expires_as_requested_or_never(tuner: Tuner) -> None:
    ann = tuner.create("operator", "ann")
    draft = TokenDraft(name="bob", role=AccessRole.ADMIN, days=0)
    bob = tuner.ask(ADMIN, "POST", "/v1/tokens", draft).json()
    assert bob["expires_at"] is None
    tuner.time.step(timedelta(days=TOKEN_DAYS) - timedelta(seconds=1))
    assert tuner.code(ann, "GET", "/v1/studies") == ""
    tuner.time.step(timedelta(seconds=1))
    answer = tuner.ask(ann, "GET", "/v1/studies")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorised")
    assert "ann is expired" in answer.json()["message"]
    assert tuner.code(bob["token"], "GET", "/v1/tokens") == ""


def test_a_persons_token_is_stored_as_argon2_and_parts_of_another_open_nothing(
    tuner: Tuner,
) -> None:
    ann, bob = tuner.create("operator", "ann@example.org"), tuner.create("operator", "bob")
    stored = {t.name: t.digest for t in tuner.store.tokens.list()}
    assert all(digest.startswith("$argon2id$") for digest in stored.values())
    assert ann.startswith("ann@example.org.")
    secret, other = ann.rpartition(".")[2], bob.rpartition(".")[2]
    wrong = [secret, f"bob.{secret}", f"ann@example.org.{other}", stored["bob"], ann[:-1], "bob."]
    assert [tuner.code(token, "GET", "/v1/studies") for token in wrong] == ["unauthorised"] * 6
    assert tuner.code(ann, "GET", "/v1/studies") == ""


def test_a_token_is_looked_up_once_until_something_changes(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, agent = tuner.create("operator", "ann"), tuner.agent("a")
    tuner.register(agent, "gpu")
    lookups: list[str] = []

    def counted(look: Any) -> Any:  # noqa: ANN401
        def ask(tokens: Tokens, by: str) -> object:
            lookups.append(by)
            return look(tokens, by)

        return ask

    monkeypatch.setattr(Tokens, "named", counted(Tokens.named))
    monkeypatch.setattr(Tokens, "of", counted(Tokens.of))
    for _ in range(5):
        assert tuner.code(ann, "GET", "/v1/studies") == ""
        assert tuner.code(agent, "POST", "/v1/devices/gpu/next", poll("gpu")) == ""
    assert len(lookups) == 2, "ann's by its digest and by its name; the agent is known"
    tuner.ask(ADMIN, "DELETE", "/v1/tokens/ann")
    assert tuner.code(ann, "GET", "/v1/studies") == "unauthorised"
    assert tuner.code(agent, "POST", "/v1/devices/gpu/next", poll("gpu")) == ""


def test_a_device_that_moved_to_another_agent_belongs_to_that_agent_alone(tuner: Tuner) -> None:
    ours, theirs = tuner.agent("a"), tuner.agent("b")
    tuner.register(ours, "gpu")
    assert tuner.code(ours, "POST", "/v1/devices/gpu/next", poll("gpu")) == ""
    tuner.verbs.loop.presence.forget("gpu")
    tuner.time.step(timedelta(hours=1))
    assert tuner.ask(ADMIN, "DELETE", "/v1/devices/gpu").status_code == 204
    assert tuner.register(theirs, "gpu") == ""
    assert tuner.code(ours, "POST", "/v1/devices/gpu/next", poll("gpu")) == "forbidden"
    assert tuner.code(theirs, "POST", "/v1/devices/gpu/next", poll("gpu")) == ""


def test_every_change_and_refusal_is_in_the_audit_log_and_no_question_is(tuner: Tuner) -> None:
    agent, ann = tuner.agent("a"), tuner.create("operator", "ann")
    tuner.register(agent, "gpu")
    made = tuner.ask(ann, "POST", "/v1/studies", study("gpu")).json()["id"]
    tuner.ask(ann, "GET", "/v1/studies")
    tuner.ask(ann, "POST", f"/v1/studies/{made}/pause", Change(who="bob"))
    tuner.ask(ann, "GET", "/v1/tokens")
    tuner.ask(agent, "POST", "/v1/stop", Change(who="ann"))
    tuner.ask("ann.guess", "GET", "/v1/studies?secret=1")
    entries = tuner.ask(ADMIN, "GET", "/v1/audit").json()
    recorded = [(e["who"], e["role"], e["method"], e["path"], e["status"]) for e in entries]
    assert recorded == [
        ("admin", "admin", "POST", "/v1/enrol", 200),
        ("admin", "admin", "POST", "/v1/tokens", 201),
        ("ann", "operator", "POST", "/v1/studies", 201),
        ("ann", "operator", "POST", f"/v1/studies/{made}/pause", 200),
        ("ann", "operator", "GET", "/v1/tokens", 403),
        ("a", "agent", "POST", "/v1/stop", 403),
    ], "what anybody can cause without a token is counted, not stored"
    assert {e["address"] for e in entries} == {"testclient"}
    mine = tuner.ask(ADMIN, "GET", "/v1/audit?who=ann&last=2").json()
    assert [e["path"] for e in mine] == [f"/v1/studies/{made}/pause", "/v1/tokens"]


def test_wrong_tokens_are_refused_and_right_ones_of_the_same_address_are_not(tuner: Tuner) -> None:
    ann, agent, once = tuner.create("operator", "ann"), tuner.agent("a"), tuner.create("enrol")
    codes = [tuner.code(f"ann.{n}", "GET", "/v1/studies") for n in range(30)]
    assert codes[0] == "unauthorised" and codes[-1] == "rate_limited"
    answer = tuner.ask("ann.guess", "GET", "/v1/studies")
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1
    assert tuner.code(ann, "GET", "/v1/studies") == ""
    assert tuner.code(ADMIN, "GET", "/v1/studies") == ""
    assert tuner.register(agent, "gpu") == ""
    assert tuner.enrol(once, "b").status_code == 200
    assert not [e for e in tuner.store.audit.list() if e.status in (401, 429)]


def test_a_guess_costs_no_computation_once_the_right_token_is_cached_nor_by_its_salt(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = tuner.create("operator", "ann")
    computed: list[str] = []

    def verify(_: object, stored: str, token: str) -> bool:
        computed.append(token)
        return True

    monkeypatch.setattr(PasswordHasher, "verify", verify)
    assert {tuner.code(f"ann.{n}", "GET", "/v1/studies") for n in range(20)} == {"unauthorised"}
    assert computed == []
    assert tuner.code(ann, "GET", "/v1/studies") == ""
    tuner.time.step(timedelta(minutes=5))
    assert tuner.code(ann, "GET", "/v1/studies") == ""
    assert computed == [ann]


def test_refusals_of_a_known_token_are_stored_for_a_while_and_then_counted(tuner: Tuner) -> None:
    vera = tuner.create("viewer", "vera")
    for _ in range(int(STORED_AT_ONCE) + 50):
        assert tuner.code(vera, "GET", "/v1/tokens") == "forbidden"
    stored = [e for e in tuner.store.audit.list() if e.who == "vera"]
    assert STORED_AT_ONCE <= len(stored) <= STORED_AT_ONCE + 20
    counted = tuner.ask(ADMIN, "GET", "/metrics").text
    assert 'jouletune_requests_refused_total{status="403"}' in counted


def test_foreign_origins_leave_nothing_in_the_audit_log_but_a_count(tuner: Tuner) -> None:
    for n in range(300):
        origin = {"Origin": f"http://evil{n}.example"}
        answer = tuner.client.get("/v1/health", headers=origin)
        assert (answer.status_code, answer.json()["code"]) == (403, "origin")
    assert tuner.store.audit.list() == ()
    counted = tuner.ask(ADMIN, "GET", "/metrics").text
    assert 'jouletune_requests_refused_total{status="403"} 300.0' in counted


def test_one_token_does_not_take_every_event_stream(tuner: Tuner) -> None:
    places = StreamPlaces(8)
    with ExitStack() as open_streams:
        for _ in range(2):
            open_streams.enter_context(places.taken("vera"))
        with pytest.raises(RateLimited, match="vera has 2 event streams open"):
            open_streams.enter_context(places.taken("vera"))
        for name in ("a", "a", "b", "b", "c", "c"):
            open_streams.enter_context(places.taken(name))
        with pytest.raises(RateLimited, match="8 event streams are open") as refused:
            open_streams.enter_context(places.taken("d"))
        assert refused.value.hint
    with places.taken("vera"):
        pass


def test_an_agent_has_a_limit_of_bytes_a_day_and_others_do_not_wait(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "AGENT_BYTES_A_DAY", 50_000.0)
    limited = Tuner(store=tuner.store)
    with limited.client:
        agent, other = limited.agent("a"), limited.agent("b")
        limited.register(agent, "gpu")
        body = Poll(agent="a/1", applied=applied("gpu"), unable="x" * 400)
        codes = [limited.code(agent, "POST", "/v1/devices/gpu/next", body) for _ in range(100)]
        assert codes[0] == "" and codes[-1] == "rate_limited"
        assert limited.register(other, "other") == ""


def test_a_token_over_its_rate_gets_a_retry_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "REQUESTS_AT_ONCE", 5.0)
    monkeypatch.setattr(gate, "REQUESTS_PER_S", 0.1)
    tuner = Tuner()
    ann = tuner.create("operator", "ann")
    codes = [tuner.code(ann, "GET", "/v1/studies") for _ in range(8)]
    assert codes == [""] * 5 + ["rate_limited"] * 3
    answer = tuner.ask(ann, "GET", "/v1/studies")
    assert 1 <= int(answer.headers["Retry-After"]) <= 10
    assert "rate limit exceeded by the token ann" in answer.json()["message"]


def test_while_the_database_is_away_tokens_are_not_reported_as_wrong(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = tuner.create("operator", "ann")

    def away(*_: object) -> NoReturn:
        raise StoreError("the database does not answer")

    monkeypatch.setattr(Tokens, "of", away)
    answer = tuner.ask(ann, "GET", "/v1/studies")
    assert (answer.status_code, answer.json()["code"]) == (503, "store")
    assert tuner.code(ADMIN, "GET", "/v1/studies") == ""


def test_one_agents_token_registers_a_limited_number_of_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "MOST_DEVICES", 2)
    tuner, mallory = Tuner(), Caller("mallory", AccessRole.AGENT)
    for name in ("a", "b", "b"):
        found = tuner.verbs.access.claimed(mallory, device(name))
        tuner.store.devices.put(found)
    with raised(Conflict, "mallory", "2 devices"):
        tuner.verbs.access.claimed(mallory, device("c"))
    assert tuner.verbs.access.claimed(Caller("eve", AccessRole.AGENT), device("c")).agent == "eve"


def test_only_the_token_itself_matches_its_stored_hash() -> None:
    stored = hashed("ann.secret")
    assert matches(stored, "ann.secret")
    assert not matches(stored, "ann.secret2")
    assert not matches(stored, stored)
    assert stored != hashed("ann.secret"), "each has a salt of its own"


@pytest.mark.parametrize("stored", ["", "$argon2", "$argon2id$v=19$m=1", digest_of("ann.secret")])
def test_a_text_that_is_not_an_argon2_hash_matches_nothing(stored: str) -> None:
    assert not matches(stored, "ann.secret")
