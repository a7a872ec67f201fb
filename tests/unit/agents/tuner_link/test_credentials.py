"""How an agent gets its own token, and keeps it."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from agents.tuner_link.client import TunerClient
from agents.tuner_link.credentials import NEXT, OWN, Credentials
from agents.tuner_link.spool import Spool
from tests.builders import completed
from tests.errors import raised
from tests.fakes import refusal
from tuner.core import LinkError, StoreError, Unauthorised
from tuner.wire import Enrolled, Receipt, Registered, Renewal, TrialReport

RENEWAL = Renewal(device="d", token=1, nonce="n")


def said(kind: Enrolled | Receipt | Registered) -> httpx2.Response:
    return httpx2.Response(200, content=kind.model_dump_json())


@dataclass
class Site:
    """An agent's folder, and a tuner that accepts only tokens enrolled with `admin`."""

    folder: Path
    known: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    enrolling: Callable[[], httpx2.Response | None] = lambda: None

    def __post_init__(self) -> None:
        (self.folder / "token").write_text("admin\n")

    def link(self, name: str = "agent@host") -> TunerClient:
        """Return the link as after a fresh start of the agent."""
        credentials = Credentials(self.folder / "state", self.folder / "token", name)
        http = httpx2.Client(base_url="http://tuner", transport=httpx2.MockTransport(self.answer))
        return TunerClient(http, credentials, Spool(self.folder / "state/spool"))

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.path)
        token = request.headers["Authorization"].removeprefix("Bearer ")
        if request.url.path != "/v1/enrol":
            if sha256(token.encode()).hexdigest() not in self.known:
                return refusal(401, "unauthorised", "the bearer token is wrong")
            trial = request.url.path == "/v1/trials/report"
            return said(Receipt(result="closed") if trial else Registered(lease_s=30.0))
        message = json.loads(request.content)
        assert token not in request.content.decode()
        if token != "admin":
            return refusal(401, "unauthorised", "the enrolment token is used up")
        if (refused := self.enrolling()) is not None and refused.status_code != 200:
            return refused
        self.known.add(message["digest"])
        if refused is not None:
            raise httpx2.ReadError("the answer got lost")
        return said(Enrolled(agent=message["agent"]))

    @property
    def own(self) -> str:
        return (self.folder / "state" / OWN).read_text()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_agent_enrols_once_and_from_then_on_shows_its_own_token(site: Site) -> None:
    link = site.link()
    assert link.renew(RENEWAL) == 30.0
    (site.folder / "token").unlink()
    link.renew(RENEWAL)
    site.link().renew(RENEWAL)
    assert site.asked == ["/v1/enrol", *["/v1/trials/renew"] * 3]
    assert "admin" not in site.own
    assert stat.S_IMODE((site.folder / "state" / OWN).stat().st_mode) == 0o600


def test_an_enrolment_repeated_after_a_lost_answer_is_not_a_second_one(site: Site) -> None:
    site.enrolling = lambda: httpx2.Response(200)
    with pytest.raises(LinkError, match="got lost"):
        site.link().renew(RENEWAL)
    site.enrolling = lambda: None
    site.link().renew(RENEWAL)
    assert len(site.known) == 1


def test_a_tuner_that_does_not_know_its_token_any_more_gets_another(site: Site) -> None:
    link = site.link()
    link.renew(RENEWAL)
    before, earlier = site.own, set(site.known)
    site.known.clear()
    link.renew(RENEWAL)
    assert site.own != before
    assert not site.known & earlier, "a token that was revoked is not enrolled again"


def test_a_folder_copied_to_another_host_does_not_make_two_of_one_agent(site: Site) -> None:
    site.link("agent@first").renew(RENEWAL)
    site.link("agent@second").renew(RENEWAL)
    assert len(site.known) == 2


@pytest.mark.parametrize("content", [None, b"", b"  \n", b"\xff"])
def test_without_a_token_to_enrol_with_the_file_is_named(site: Site, content: bytes | None) -> None:
    token = site.folder / "token"
    token.unlink() if content is None else token.write_bytes(content)
    with pytest.raises(Unauthorised, match=str(token)):
        site.link().renew(RENEWAL)


@pytest.mark.parametrize(
    ("status", "code"),
    [(409, "conflict"), (403, "forbidden"), (422, "invalid_input"), (404, "not_found")],
)
def test_a_refused_enrolment_loses_no_report(site: Site, status: int, code: str) -> None:
    site.enrolling = lambda: refusal(status, code, "there is one of that name")
    link = site.link()
    outcome = completed()
    link.keep(
        TrialReport(device="d", study="s", trial=1, attempt=1, token=1, nonce="n", outcome=outcome)
    )
    with raised(Unauthorised, "do otherwise"):
        link.deliver()
    site.enrolling = lambda: None
    assert link.deliver() == 1


def test_a_new_token_that_cannot_be_written_down_is_not_enrolled(site: Site) -> None:
    (site.folder / "state").write_text("a file where a folder should be")
    credentials = Credentials(site.folder / "state", site.folder / "token", "agent@host")
    with pytest.raises(StoreError, match=NEXT):
        credentials.enrol(lambda *_: pytest.fail("it was asked"), "")
    assert credentials.own == ""
