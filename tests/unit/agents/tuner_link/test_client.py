from __future__ import annotations

import random

import httpx2
import pytest

from agents.tuner_link.client import Backoff, connect
from tests.builders import applied, completed, device
from tests.errors import raised
from tests.fakes import Rig, refusal
from tuner.core import (
    ConfigError,
    Conflict,
    DeviceBusy,
    Forbidden,
    InvalidInput,
    LinkError,
    NotFound,
    OutOfRange,
    ProtocolMismatch,
    StaleToken,
    TooLarge,
    Unauthorised,
)
from tuner.wire import Idle, Poll, Renewal, TrialReport

RENEWAL = Renewal(device="d", token=1, nonce="n")
REPORT = TrialReport(
    device="d", study="s", trial=1, attempt=1, token=1, nonce="n", outcome=completed()
)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, "unauthorised", Unauthorised),
        (403, "forbidden", Forbidden),
        (400, "host", LinkError),
        (403, "origin", LinkError),
        (404, "http", LinkError),
        (400, "malformed", LinkError),
        (413, "too_large", TooLarge),
        (409, "", LinkError),
        (404, "not_found", NotFound),
        (409, "conflict", Conflict),
        (409, "stale_token", StaleToken),
        (409, "device_busy", DeviceBusy),
        (400, "out_of_range", OutOfRange),
        (422, "invalid_input", InvalidInput),
        (426, "protocol", ProtocolMismatch),
        (500, "", LinkError),
        (503, "store", LinkError),
        (429, "", LinkError),
    ],
)
def test_a_refusal_becomes_the_error_of_its_code(
    rig: Rig, status: int, code: str, error: type[Exception]
) -> None:
    rig.tuner.broken = lambda _: refusal(status, code, "so it is")
    with pytest.raises(error, match="so it is; do otherwise") as caught:
        rig.link.renew(RENEWAL)
    assert type(caught.value) is error


@pytest.mark.promise("the network fails, or a proxy answers instead of the tuner")
@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 426, 301, 500])
def test_an_answer_that_is_not_the_tuners_loses_no_report(rig: Rig, status: int) -> None:
    link = rig.link
    link.keep(REPORT)
    for content in ("<html>nginx</html>", '{"detail": "Not Found"}', ""):
        rig.tuner.broken = lambda _, content=content: httpx2.Response(status, text=content)  # type: ignore[misc]
        with raised(LinkError, "HTTP", status):
            link.deliver()
    rig.tuner.broken = lambda _: refusal(400, "host", "this tuner is not called so")
    with pytest.raises(LinkError, match="not called so"):
        link.deliver()
    gateway = {"code": "not_found", "message": "no route matched"}
    rig.tuner.broken = lambda _: httpx2.Response(404, json=gateway)
    with raised(LinkError, "HTTP", "HTTP 404"):
        link.deliver()
    rig.tuner.broken = lambda _: None
    assert link.deliver() == 1
    assert len(rig.tuner.told("/trials/report")) == 1


def test_a_token_that_cannot_be_read_costs_no_report(rig: Rig) -> None:
    link = rig.link
    link._credentials.own = ""
    link.keep(REPORT)
    (rig.folder / "token").rename(rig.folder / "elsewhere")
    with raised(Unauthorised, "token file"):
        link.deliver()
    (rig.folder / "elsewhere").rename(rig.folder / "token")
    assert link.deliver() == 1


def test_no_connection_is_a_link_error_that_names_the_address(rig: Rig) -> None:
    def fail(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("connection refused", request=request)

    rig.tuner.broken = fail
    with raised(LinkError, "http://tuner"):
        rig.link.register(device())


def test_an_answer_that_did_not_come_from_a_tuner_is_a_link_error(rig: Rig) -> None:
    rig.tuner.broken = lambda _: httpx2.Response(200, json={"kind": "dance"})
    with raised(LinkError, "tuner"):
        rig.link.next("d", Poll(agent="a/1", applied=applied()))


def test_a_device_may_have_any_name_in_the_path(rig: Rig) -> None:
    paths: list[bytes] = []

    def look(request: httpx2.Request) -> None:
        paths.append(request.url.raw_path)

    rig.tuner.broken = look
    answer = rig.link.next("a b/c@host", Poll(agent="a/1", applied=applied()))
    assert answer == Idle(why="nothing to do")
    assert paths == [b"/v1/devices/a%20b%2Fc%40host/next"]


def test_the_wait_for_an_answer_grows_with_the_poll(rig: Rig) -> None:
    timeouts: list[float] = []

    def look(request: httpx2.Request) -> None:
        timeouts.append(request.extensions["timeout"]["read"])

    rig.tuner.broken = look
    rig.link.next("d", Poll(agent="a/1", applied=applied(), wait_s=20.0))
    rig.link.renew(RENEWAL)
    assert timeouts == [30.0, 10.0]


@pytest.mark.parametrize("receipt", ["closed", "kept", "late", "duplicate"])
def test_any_receipt_counts_as_delivered(rig: Rig, receipt: str) -> None:
    rig.tuner.receipt = receipt
    link = rig.link
    link.keep(
        TrialReport(
            device="d", study="s", trial=1, attempt=1, token=1, nonce="n", outcome=completed()
        )
    )
    assert link.deliver() == 1
    assert rig.spool.waiting() == []


def test_waits_double_up_to_the_longest_and_differ() -> None:
    backoff = Backoff(random.Random(0), first_s=1.0, most_s=8.0)
    waits = [backoff.failed() for _ in range(6)]
    for wait, longest in zip(waits, (1.0, 2.0, 4.0, 8.0, 8.0, 8.0), strict=True):
        assert longest / 2.0 <= wait <= longest
    assert len(set(waits)) == 6
    backoff.worked()
    assert backoff.failed() <= 1.0
    assert backoff.failed(final=True) >= 4.0


def test_agents_of_different_seeds_do_not_come_back_together() -> None:
    waits = {Backoff(random.Random(f"{seed}/d")).failed() for seed in range(10)}
    assert len(waits) == 10


def test_an_address_that_is_no_url_is_refused_without_its_password() -> None:
    with raised(ConfigError, "'http://…@[::1': Invalid port"):
        connect("http://u:secret@[::1")
